"""If a package that private training needs is missing, one line says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, Without())
try:
    import discreet.learning
except ImportError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("missing", ["torch", pytest.param("cryptography", marks=pytest.mark.slow)])
def test_a_missing_package_says_what_to_install(missing):
    done = subprocess.run([sys.executable, "-c", SCRIPT, missing], capture_output=True, text=True, check=True)
    assert done.stdout == f"MissingExtra private training needs {missing}: pip install 'discreet[learning]'\n"
