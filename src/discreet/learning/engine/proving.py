"""Proves the first pass of a model, and finds the rules for its parameters: in one trace where that is enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from discreet.errors import DiscreetError, InvalidArgument
from discreet.learning.engine.clipped import AnotherPass, Coverage
from discreet.learning.engine.independence import Misplaced, Outside, Unproved

#: A coverage, and why each parameter of the fallback needs it.
Found = tuple[Coverage, dict[str, str]]


class CoverageSearch:
    """Finds the coverage of a model in the middle of a trace, once the pass is proved to keep examples apart.

    Attributes:
        found: what the dry run found; None before.
        failed: whether the model cannot be covered, so that the trace ends with the error that says so.
    """

    def __init__(self, find: Callable[..., Found]) -> None:
        self._find = find
        self._free: frozenset[str] = frozenset()
        self._doubted: frozenset[str] = frozenset()
        self.found: Found | None = None
        self.failed = False

    def __call__(self, free: frozenset[str]) -> Coverage:
        """Run the dry run, on tensors with data, which the trace does not see; `free` is as for `ForwardRecorder`."""
        self._free = free
        return self._search()

    def doubting(self, names: Iterable[str]) -> bool:
        """Search again, for a coverage without rules for these parameters; says whether that is another one."""
        doubted = self._doubted | frozenset(names)
        if self.found is None or doubted == self._doubted:
            return False
        self._doubted = doubted
        self._search()
        return True

    def _search(self) -> Coverage:
        self.failed = True
        with _disable_current_modes():
            self.found = self._find(free=self._free, doubted=self._doubted)
        self.failed = False
        return self.found[0]


def prove_and_cover(
    trace: Callable[[Coverage | CoverageSearch], GraphModule], find: Callable[..., Found], outside: Outside
) -> tuple[Found | None, str, GraphModule | None]:
    """Trace a pass, prove that its examples do not mix, and find the coverage.

    The dry run `find` takes place in the middle of the trace, when the model's code has run without data and is proved.
    If what it finds changes the pass, the new one is traced and proved again, which includes where the examples lie.
    Parameters for which that fails go through the fallback.

    Returns:
        The coverage, or None and why the pass is not proved; and the graph, if it could be traced to its end.
    """
    search = CoverageSearch(find)
    known: Coverage | None = None
    while True:
        error: Exception | None = None
        graph: GraphModule | None = None
        try:
            graph = trace(known or search)
        except Exception as raised:  # a model may fail in any way on tensors without data
            if search.failed or isinstance(raised, InvalidArgument):
                raise
            error = raised
        finally:
            outside.closed = True
        if search.found is None:
            assert error is not None
            return None, _why(error), None
        outside.check_unchanged()
        found = search.found[0]
        if error is None or found.alone:
            return search.found, "", graph
        if known is not None and not search.doubting(_suspects(error, found)):
            # No rule is to blame. If the pass is proved but cannot be traced to its end, its Python code runs.
            proved = not isinstance(error, Unproved | DiscreetError)
            return (search.found, "", None) if proved else (None, _why(error), None)
        if known is None and not (isinstance(error, AnotherPass) or found.changes_the_pass):
            return search.found, "", None
        known = search.found[0]


def _why(error: Exception) -> str:
    """Why a pass is not proved."""
    if isinstance(error, Unproved | DiscreetError):
        return str(error)
    return f"the pass could not be traced without data ({type(error).__name__})"


def _suspects(error: Exception, coverage: Coverage) -> Sequence[str]:
    """The parameters whose rules may be the reason why a pass failed that was traced with a coverage."""
    if isinstance(error, Misplaced):
        return error.names
    places = zip(coverage.signatures, coverage.layouts, strict=True)
    return [name for names, layout in places if layout is not None and layout.kind == "shared" for name in names[1:]]
