"""Runs all benchmarks in turn: `python -m benchmarks`. The arguments are passed to each."""

import pkgutil
import subprocess
import sys

import benchmarks

for module in pkgutil.iter_modules(benchmarks.__path__):
    if not module.name.startswith("_"):
        print(f"\n== {module.name}")
        subprocess.run([sys.executable, "-m", f"benchmarks.{module.name}", *sys.argv[1:]], check=True)
