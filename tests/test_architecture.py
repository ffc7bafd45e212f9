"""The shape of the project: who imports whom, what is public, how long a file is, what a docstring promises."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import os
import pkgutil
import sys
from pathlib import Path

import pytest

import discreet

ROOT = Path(discreet.__file__).parent
REPOSITORY = Path(__file__).parent.parent
FILES = sorted(ROOT.rglob("*.py"))
NOUNS = {
    "attestation",
    "beliefs",
    "errors",
    "neighbors",
    "bounded",
    "events",
    "codec",
    "guarantees",
    "release",
    "_check",
    "_files",
    "numeric",
}

#: Layers from the bottom up; a package may import those below it, and itself, but not its siblings or those above.
LAYERS: list[set[str]] = [
    NOUNS,
    {"datasets"},
    {"accounting", "queries"},
    {"mechanisms"},
    {"ledger"},
    {"analytics", "learning"},
    {"auditing"},
    {"apps"},
]
#: Third-party packages that all layers may import (the base install), and what an extra gives to one of them.
THIRD_PARTY = {"numpy", "scipy"}
EXTRAS = {
    "beliefs": {"matplotlib"},  # to draw a belief
    "mechanisms": {"matplotlib"},  # to draw a range of ε
    "datasets": {"pyarrow"},  # to write a Parquet file
    "accounting": {"matplotlib"},  # to plot a curve
    "auditing": {"matplotlib"},
    "ledger": {"cryptography", "psycopg"},
    "analytics": {"ibis", "pyarrow", "pandas", "polars", "duckdb", "sqlglot", "matplotlib"},
    "apps": {"click", "jinja2", "jwt", "markupsafe", "matplotlib", "mcp", "pyarrow", "rich", "starlette", "uvicorn"},
    # triton comes with torch for CUDA; the frameworks of learning/integrations are imported by name when used
    "learning": {"cryptography", "torch", "triton", "rich", "matplotlib"},
}


def place(path: Path) -> str:
    """The package or root module that a file belongs to."""
    inside = path.relative_to(ROOT)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def level(name: str) -> int:
    return next(i for i, layer in enumerate(LAYERS) if name in layer)


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path) -> set[str]:
    """Every module that a file imports, at its top or inside a function."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_imports_downwards_only(path):
    if path == ROOT / "__init__.py":
        return
    mine = place(path)
    for name in imports(path):
        parts = name.split(".")
        if parts[0] != "discreet":
            allowed = THIRD_PARTY | EXTRAS.get(mine, set()) | sys.stdlib_module_names
            assert parts[0] in allowed, f"{mine} imports {name}"
            continue
        if len(parts) == 1 or (theirs := parts[1]) == mine:
            continue
        assert theirs in {n for layer in LAYERS for n in layer}, f"{mine} imports {name}, which has no layer"
        both_nouns = mine in NOUNS and theirs in NOUNS
        assert both_nouns or level(theirs) < level(mine), f"{mine} must not import {name}"


def test_every_package_has_a_layer():
    known = {name for layer in LAYERS for name in layer} | {"__init__"}
    assert {place(path) for path in FILES} <= known


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_is_one_room(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 450, "a file this long is two rooms"
    docstring = ast.get_docstring(parsed(path))
    assert docstring, "a file starts with a docstring that says why it is there"
    assert path.stem not in {"utils", "helpers", "misc", "common"}


def public_modules():
    yield discreet
    for module in pkgutil.walk_packages(discreet.__path__, "discreet."):
        if not module.name.rpartition(".")[2].startswith("_"):
            yield importlib.import_module(module.name)


def test_all_is_a_literal_and_equals_what_is_importable():
    for module in public_modules():
        if not hasattr(module, "__path__"):
            continue
        tree = ast.parse(Path(module.__file__).read_text())
        literal = [
            ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
        ]
        shown = [name for name, value in vars(module).items() if name[0] != "_" and not inspect.ismodule(value)]
        if not literal and not shown:
            continue  # a package that only holds modules
        assert len(literal) == 1, f"{module.__name__} has no literal __all__"
        assert len(set(literal[0])) == len(literal[0])
        missing = [name for name in literal[0] if not hasattr(module, name)]
        assert not missing, f"{module.__name__} lists {missing}"
        hidden = set(shown) - set(literal[0])
        assert not hidden, f"{module.__name__} shows {hidden} without listing them"


def test_no_public_module_is_hidden_by_a_name_of_its_package():
    """`import discreet.accounting.pure as m` gives a module: a package that exports `pure` keeps it in `_pure`."""
    hidden = []
    for module in public_modules():
        package, _, name = module.__name__.rpartition(".")
        if package and getattr(sys.modules[package], name) is not module:
            hidden.append(module.__name__)
    assert not hidden


#: Underscored attributes of torch's modules and tensors, of Ibis's Spark engine and of named tuples.
FOREIGN_ATTRIBUTES = {"_modules", "_buffers", "_version", "_session", "_make"}


def underscored_names(path: Path) -> set[str]:
    """The underscored names that a file defines, not those that it copies from another object (`x._y = z._y`)."""
    names = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                several = isinstance(target, ast.Tuple)
                values = node.value.elts if several and isinstance(node.value, ast.Tuple) else [node.value]
                for index, one in enumerate(target.elts if several else [target]):
                    name = getattr(one, "attr", getattr(one, "id", ""))
                    if getattr(values[min(index, len(values) - 1)], "attr", None) != name:
                        names.add(name)
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def test_no_package_reaches_into_another():
    """`x._name` stands only in the folder that defines `_name`, unless x is `self` or `cls`."""
    by_folder: dict[Path, set[str]] = {}
    for path in FILES:
        by_folder.setdefault(path.parent, set()).update(underscored_names(path))
    ours = set().union(*by_folder.values()) - FOREIGN_ATTRIBUTES
    reached = [
        f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for path in FILES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute)
        and node.attr in ours - by_folder[path.parent]
        and getattr(node.value, "id", "") not in {"self", "cls"}
    ]
    assert not reached


def test_only_the_files_of_a_form_of_budget_ask_which_one_it_is():
    """A file that tests for several of ZCDP, RDP and GDP would have to change with each new form of budget."""
    own = {"guarantees.py", "codec.py", "accounting/adaptive/budgets.py", "accounting/adaptive/form.py"}
    switching = {}
    for path in FILES:
        asked = set()
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                asked |= {getattr(inner, "id", getattr(inner, "attr", "")) for inner in ast.walk(node.args[1])}
            elif isinstance(node, ast.MatchClass):
                asked.add(getattr(node.cls, "id", getattr(node.cls, "attr", "")))
        if len(asked & {"ZCDP", "RDP", "GDP"}) > 1 and str(path.relative_to(ROOT)) not in own:
            switching[str(path.relative_to(ROOT))] = asked & {"ZCDP", "RDP", "GDP"}
    assert not switching


def is_alias(node: ast.stmt) -> bool:
    """Whether a statement of a module names a type: `Floats = NDArray[np.float64]`."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    name = getattr(target, "id", "_")
    return name[0].isupper() and not name.isupper() and getattr(node, "value", None) is not None


def test_a_type_name_means_one_thing():
    """No class shares its name with another class or alias, and aliases of one name have one definition.

    An event has the name of the mechanism that it records: `events.Laplace` is what `mechanisms.Laplace` ran.
    """
    meanings: dict[str, dict[str, str]] = {}
    for path in FILES:
        where = str(path.relative_to(ROOT))
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                meanings.setdefault(node.name, {})[f"{where}:{node.lineno}"] = f"class {where}:{node.lineno}"
        for node in parsed(path).body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and is_alias(node):
                name = (node.targets[0] if isinstance(node, ast.Assign) else node.target).id
                meanings.setdefault(name, {})[f"{where}:{node.lineno}"] = ast.unparse(node.value)
    twice = {}
    for name, places in meanings.items():
        records_mechanism = sorted(where.split("/")[0] for where in places) == ["events", "mechanisms"]
        if len(set(places.values())) > 1 and not records_mechanism:
            twice[name] = sorted(places)
    assert not twice


def touches_data(function) -> bool:
    """Whether a public function takes data, something bounded, or turns one into the other."""
    names = set(inspect.signature(function).parameters)
    return bool(names & {"values", "bounded", "scores", "truth", "predicted", "persons", "reports"})


def callables():
    """Every public function and method, including those that a package re-exports from a private module."""
    for module in map(importlib.import_module, (m.name for m in pkgutil.walk_packages(discreet.__path__, "discreet."))):
        for name, value in vars(module).items():
            if name.startswith("_") or getattr(value, "__module__", "") != module.__name__:
                continue
            if inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value
            elif inspect.isclass(value):
                for method_name, method in vars(value).items():
                    if not method_name.startswith("_") and inspect.isfunction(method):
                        yield f"{module.__name__}.{name}.{method_name}", method


def test_every_public_function_that_touches_data_states_its_guarantee():
    """Functions that take data and return a release, a bounded value, or rows."""
    for name, function in callables():
        returns = str(inspect.signature(function).return_annotation)
        makes = any(word in returns for word in ("Release", "Bounded", "Scores", "NDArray", "SparseVector"))
        area = name.split(".")[1]
        if area not in {"queries", "mechanisms"} or not (touches_data(function) and makes):
            continue
        if name.startswith(
            (
                "discreet.queries.grid",
                "discreet.queries.statistics.mean.mean_of",
                "discreet.queries.statistics.histogram.cat",
            )
        ):
            continue  # shared by the queries, not for users
        if name.endswith((".limit_rows", ".used_rows")) and "used" in name:
            continue
        assert "Guarantee:" in (inspect.getdoc(function) or ""), f"{name} has no Guarantee: section"


def test_every_public_name_has_a_docstring():
    """Everything that a package lists in its __all__, and the public methods of its classes."""
    missing = []
    for module in public_modules():
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if not (inspect.isfunction(value) or inspect.isclass(value)):
                continue
            methods = vars(value).items() if inspect.isclass(value) else ()
            inside = [getattr(value, n) for n, m in methods if n[0] != "_" and inspect.isfunction(m)]
            missing += [
                f"{module.__name__}.{thing.__qualname__}" for thing in (value, *inside) if not inspect.getdoc(thing)
            ]
    assert not missing


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_privacy_decision_compares_floats_for_equality(path):
    """Comparing with a float literal, inf or nan, or comparing names such as epsilon or delta, is refused."""
    suspects = {"epsilon", "delta", "rho", "mu", "sigma", "scale", "noise_multiplier", "rate", "probability"}
    for node in ast.walk(parsed(path)):
        if not isinstance(node, ast.Compare) or not any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
            continue
        for side in (node.left, *node.comparators):
            name = getattr(side, "id", getattr(side, "attr", ""))
            literal = isinstance(side, ast.Constant) and isinstance(side.value, float)
            assert not literal, f"line {node.lineno}: equality with a float"
            assert name not in suspects | {"inf", "nan"}, f"line {node.lineno}: equality of {name}"


def test_only_queries_and_learning_make_bounded_values():
    for path in FILES:
        if place(path) in {"queries", "learning", "bounded"}:
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in {
                "Bounded",
                "Scores",
            }:
                pytest.fail(f"{path}:{node.lineno} makes a bounded value")


def test_only_the_entropy_file_draws_randomness_for_releases():
    for path in FILES:
        # Tokens and names of requests are drawn by `secrets` too; they say nothing about data.
        for_tokens = str(path.relative_to(ROOT)).startswith(("ledger/access/", "apps/server/"))
        assert not imports(path) & {"random", "numpy.random", *(() if for_tokens else ("secrets",))}, path
        # The hospital's file makes up data from a seed, and releases nothing.
        if path.name not in {"entropy.py", "_hospital.py"}:
            text = path.read_text()
            assert "np.random" not in text, path
            assert "urandom" not in text, path


def test_the_project_speaks_of_itself_alone():
    """No registry's host and no machine's path in any tracked text."""
    tracked = {".ci", ".github", ".pre-commit-config.yaml"}
    hosts = ["py" + "pi.org", "files.python" + "hosted", "registry.npm" + "js"]
    for folder, folders, names in os.walk(REPOSITORY):
        folders[:] = [name for name in folders if name != "site" and (name[0] != "." or name in tracked)]
        for path in (Path(folder, name) for name in names if name[0] != "." or name in tracked):
            if path.suffix not in {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ""}:
                continue
            text = path.read_text(errors="ignore")
            assert not any(host in text for host in hosts), path
            assert "/work/" + "main" not in text, path
