"""What a learner has solved, kept in a small file that is replaced as a whole after each right answer."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from discreet.errors import InvalidArgument

_VERSION = 1


def default_path() -> Path:
    """$XDG_STATE_HOME/discreet/learn.json, or ~/.local/state/discreet/learn.json."""
    base = os.environ.get("XDG_STATE_HOME", "")
    # The specification says to ignore relative paths.
    state = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state"
    return state / "discreet" / "learn.json"


@dataclass
class Progress:
    """How many questions of each exercise are solved, in order."""

    path: Path
    solved: dict[str, int] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Progress:
        """Read the file. A missing one is a fresh start; a damaged one is an error and never overwritten."""
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return cls(path)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise _refused(path, str(reason)) from None
        try:
            stored = json.loads(text)
            if stored["version"] != _VERSION:
                raise _refused(path, "it was written by another version")
            solved = {str(slug): int(count) for slug, count in stored["solved"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise _refused(path, "it is not a file of `discreet learn`") from None
        return cls(path, {slug: max(0, count) for slug, count in solved.items()})

    def of(self, slug: str) -> int:
        """The number of solved questions of an exercise."""
        return self.solved.get(slug, 0)

    def record(self, slug: str, count: int) -> None:
        """Remember that the first `count` questions are solved, on disk before this returns.

        The new file replaces the old one in one step, so a process that is killed leaves one or the other.
        """
        self.solved[slug] = count
        text = json.dumps({"version": _VERSION, "solved": self.solved}, indent=1) + "\n"
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self.path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise _refused(self.path, error.strerror or "it cannot be written") from None


def _refused(path: Path, reason: str) -> InvalidArgument:
    return InvalidArgument(
        f"--progress must be a file of solved exercises, got {str(path)!r}: {reason}; move it away or name another"
    )
