"""Continuous integration runs what a contributor runs: make targets, and the tools that they install."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def recipe(target: str) -> list[str]:
    """The commands of a target."""
    return re.search(rf"^{target}:.*\n((?:\t.*\n)*)", MAKEFILE, re.MULTILINE)[1].replace("\t", "").splitlines()


def commands(path: Path) -> list[str]:
    """The commands that a workflow runs."""
    jobs = yaml.safe_load(path.read_text())["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_a_workflow_only_calls_make_targets_that_exist(path):
    called = commands(path)
    assert called
    for command in called:
        make, target, *arguments = command.split(maxsplit=2)
        assert make == "make"
        assert target in TARGETS
        assert all(argument.startswith("TAG=") for argument in arguments)


def test_ci_tests_every_supported_version_of_python():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    called = commands(ROOT / ".github" / "workflows" / "ci.yml")
    assert {"make check", "make test", "make test-all"} <= set(called)


def test_a_hook_calls_a_tool_that_make_check_installs_and_runs():
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repo["repo"] == "local"
    checks = " ".join(recipe("check"))
    for hook in repo["hooks"]:
        folder, _, tool = hook["entry"].partition("/bin/")
        assert folder == ".venv"
        assert f"-m {tool}" in checks


def test_all_tests_build_the_documentation_that_a_reader_builds():
    assert "$(MAKE) docs" in recipe("test-all")
    assert recipe("docs") == ["$(PY) -m mkdocs build --strict"]
