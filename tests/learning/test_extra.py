"""Without torch there is one line that says what to install."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
class WithoutTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, WithoutTorch())
try:
    import discreet.learning
except ImportError as error:
    print(type(error).__name__, error)
"""


def test_a_missing_torch_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout == "MissingExtra private training needs torch: pip install 'discreet[learning]'\n"
