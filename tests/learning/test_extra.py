"""Without torch there is one line that says what to install."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
sys.modules["torch"] = None
try:
    import discreet.learning
except ImportError as error:
    print(type(error).__name__, error)
"""


def test_a_missing_torch_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout == "MissingExtra private training needs torch: pip install 'discreet[learning]'\n"
