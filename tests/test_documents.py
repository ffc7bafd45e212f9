"""The documents hold what they promise: their code runs and fits the page, their links lead somewhere."""

from __future__ import annotations

import importlib
import re
import runpy
from pathlib import Path

import pytest

import discreet

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOCUMENTS = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md"]
EXAMPLES = [
    pytest.param(path, id=path.name, marks=[pytest.mark.peer] if "from opacus import" in path.read_text() else [])
    for path in sorted((ROOT / "examples").glob("*.py"))
]

#: Characters of code that fit on a page of the site in a window 1280 px wide, measured with docs/stylesheets/extra.css:
#: 102, less two to spare. Pages that are written from docstrings and help texts are not held to it: they wrap.
CODE_WIDTH = 100
GENERATED = {ROOT / "docs" / "cli.md"}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def slug(heading: str) -> str:
    """The anchor that MkDocs and GitHub give a heading."""
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain))


def without_code(text: str) -> str:
    return re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)


#: Pages whose code takes long: it reads larger files, and asks each of twelve months.
LONG = {ROOT / "docs" / "tutorials" / "hospital.md"}
TIMED = [pytest.param(page, marks=pytest.mark.slow) if page in LONG else page for page in PAGES]


@pytest.mark.parametrize("page", TIMED, ids=relative)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in GENERATED], ids=relative)
def test_no_line_of_code_is_wider_than_the_page(page):
    blocks = re.findall(r"^( *)```[^\n]*\n(.*?)^\1```", page.read_text(), re.MULTILINE | re.DOTALL)
    too_wide = [line for _, block in blocks for line in block.splitlines() if len(line) > CODE_WIDTH]
    assert not too_wide


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_formulas_are_plain_text_because_the_site_renders_no_tex(document):
    assert not re.findall(
        r"\$\$|\\[(\[]|\\(?:frac|sum|int|le|ge|varepsilon|delta|alpha)\b", without_code(document.read_text())
    )


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_link_to_a_file_or_heading_leads_somewhere(document):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", without_code(document.read_text())):
        if "://" in target:
            continue
        path = document.parent / target if target else document
        assert path.exists(), f"{target} does not exist"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", without_code(path.read_text()), re.MULTILINE)
            assert anchor in map(slug, headings), f"{target} has no heading #{anchor}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_source_file_that_a_document_names_exists(document):
    if document.name == "CHANGELOG.md":  # names files of older versions too
        return
    for name in re.findall(r"`((?:\w+/)+\w+\.py)`", document.read_text()):
        assert (ROOT / name).exists() or (ROOT / "src" / "discreet" / name).exists(), name


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    "package",
    [
        "accounting",
        "analytics",
        "learning",
        "learning.federated",
        "learning.convex",
        "learning.pate",
        "learning.selection",
        "ledger",
        "ledger.access",
        "ledger.evidence",
        "mechanisms",
        "queries",
    ],
)
def test_the_reference_documents_every_public_name(package):
    module = importlib.import_module(f"discreet.{package}")
    page = (ROOT / "docs" / "reference" / f"{package.rpartition('.')[2]}.md").read_text()
    documented = set(re.findall(r"^::: ([\w.]+)", page, re.MULTILINE))
    for name in module.__all__:
        defined_in = getattr(module, name).__module__  # a page may show a whole module
        assert {f"discreet.{package}.{name}", defined_in} & documented, f"{name} is missing"


def test_the_readme_names_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text


def test_the_newest_version_of_the_changelog_is_that_of_the_package():
    versions = re.findall(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == discreet.__version__


def test_the_map_names_files_that_exist_and_covers_ten_changes_and_five_flows():
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"`([\w/.-]+\.(?:py|jinja|md)|[\w/.-]+/)`", page)
    missing = [name for name in named if not any((base / name).exists() for base in (ROOT, ROOT / "src" / "discreet"))]
    assert len(named) > 60
    assert not missing
    packages = re.findall(r"^\| `(\w+/)` \|", page, re.MULTILINE)
    folders = {f"{path.parent.name}/" for path in (ROOT / "src" / "discreet").glob("*/__init__.py")}
    assert sorted(packages) == sorted(folders - {"events/"})  # each package once; events are among the nouns
    flows = page.split("## Five flows")[1].split("## Which files")[0]
    steps = [len(re.findall(r"^\d+\. ", flow, re.MULTILINE)) for flow in flows.split("\n**")[1:]]
    assert len(steps) == 5
    assert 2 <= min(steps) <= max(steps) <= 10
    assert len(re.findall(r"^\| an? [\w ]+ \| \d+ \| \d+ \|", page, re.MULTILINE)) == 10
