"""The `discreet` command. It imports the program lazily, so that a missing extra gives one line, not a traceback."""

import collections.abc
import sys

__all__ = ["main"]


def main(arguments: collections.abc.Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: success. 2: invalid input. 3: the budget has no room. 1: any other failure.
    """
    try:
        from discreet.apps.cli import program
    except ModuleNotFoundError as error:
        if error.name not in {"click", "rich"}:
            raise
        print("error: the command line needs click and rich: pip install 'discreet[cli]'", file=sys.stderr)
        return 1
    return program.run(arguments)
