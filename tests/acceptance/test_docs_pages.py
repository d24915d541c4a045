"""The pages of the documentation: their links exist, their proofs exist, the reference is complete."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from stateward.cli.main import app
from stateward.config import describe
from stateward.plugin import DomainPlugin, Kind, ProcessContext, Rules, Why
from stateward.plugin.registry import installed
from tools import site
from tools.reference import api, commands, python_api, settings
from tools.screenshots import GALLERY

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), ROOT / site.GUIDE, *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
)
PROVED = ("promises.md", "threats.md")
LINK = re.compile(r"\[([^]]*)\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def links(page: Path) -> Iterator[tuple[str, str]]:
    for text, target in LINK.findall(FENCED.sub("", page.read_text("utf-8"))):
        if "://" not in target:
            yield text, target


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for _, target in links(page):
        path, _, anchor = target.partition("#")
        found = (page.parent / path) if path else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


@pytest.mark.parametrize(
    ("name", "file"),
    sorted({one for page in PROVED for one in links(ROOT / "docs" / page) if one[0].startswith("test_")}),
    ids=lambda value: value if value.startswith("test_") else "",
)
def test_a_proof_that_is_named_is_in_the_file_that_is_linked(name: str, file: str) -> None:
    assert re.search(rf"def {name}\(", (ROOT / "docs" / file).read_text("utf-8"))


def packages(pyproject: dict[str, Any]) -> Iterator[str]:
    """Return every package that pyproject.toml asks for, whatever for."""
    project = pyproject["project"]
    groups = [
        project["dependencies"],
        *project["optional-dependencies"].values(),
        *pyproject["dependency-groups"].values(),
    ]
    for wanted in (one for group in groups for one in group if isinstance(one, str)):
        yield re.split(r"[\[<>=; ]", wanted)[0]


def test_every_dependency_has_its_reason() -> None:
    page = (ROOT / "docs" / "decisions" / "003-dependencies.md").read_text("utf-8")
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    families = {"opentelemetry-sdk": "-sdk", "opentelemetry-exporter-otlp-proto-http": "OTLP exporter over HTTP"}
    assert [one for one in packages(pyproject) if families.get(one, one) not in page] == []


# --- the reference ---------------------------------------------------------------------------------------------------


def test_every_setting_is_in_the_reference() -> None:
    page = settings.page()
    names = [name for name, _, _ in describe(installed().sections)]
    assert [name for name in names if f"| `{name}` | `STATEWARD_{name.upper()}` |" not in page] == []


def test_every_command_is_in_the_reference_with_its_options() -> None:
    pages = dict(commands.pages())
    root: Any = get_command(app)
    for name, one in root.commands.items():
        page = pages.get(name, pages[commands.GENERAL])
        assert f"## stateward {name}" in page
        for leaf in getattr(one, "commands", {}):
            assert f"## stateward {name} {leaf}" in page
    assert "| `--no-worker`" in pages[commands.GENERAL] or "`--worker`, `--no-worker`" in pages[commands.GENERAL]


def test_every_call_and_every_record_is_in_the_reference_and_records_are_linked() -> None:
    description = api.description()
    text = "\n".join(page for _, page in api.pages(description))
    calls = [f"## `{method.upper()} {path}`" for path, item in description["paths"].items() for method in item]
    assert [one for one in calls if one not in text] == []
    assert [name for name in description["components"]["schemas"] if f"\n## {name}\n" not in text] == []
    targets = set(re.findall(r"^\((record-[^)]+)\)=$", text, re.MULTILINE))
    assert set(re.findall(r"\(#(record-[^)]+)\)", text)) <= targets


@pytest.mark.parametrize("package", python_api.PACKAGES)
def test_every_public_name_has_a_docstring_and_stands_in_the_reference(package: str) -> None:
    pages = dict(python_api.pages())
    assert python_api.undocumented(package) == []
    for one in python_api.public_names(package):
        assert (
            f"`{one.name}`" in pages[package.rpartition(".")[2]]
            or f"## {one.name}\n" in pages[package.rpartition(".")[2]]
        )
    text = "\n".join(pages.values())
    assert set(re.findall(r"\(#(python-[^)]+)\)", text)) <= set(
        re.findall(r"^\((python-[^)]+)\)=$", text, re.MULTILINE)
    )


def test_a_page_of_a_package_tells_fields_methods_and_constants() -> None:
    pages = dict(python_api.pages())
    assert "| `version` | `str` | `''` |" in pages["plugin"]
    assert "### Job.once\n\n```python\nasync def once(" in pages["engine"]
    assert "| `MINUTE` |  | sixty seconds |" in pages["lifecycle"]
    assert "[`Job`](#python-engine-Job)" in pages["plugin"]


def test_the_page_about_plugins_has_every_field() -> None:
    page = (ROOT / "docs" / "howto" / "plugin.md").read_text("utf-8")
    rows = "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    for record in (DomainPlugin, ProcessContext, Rules, Why):
        assert [field for field in record.__struct_fields__ if f"`{field}`" not in rows] == []
    made = "types"  # of the declared ones, by the kind itself
    assert [field for field in Kind.__struct_fields__ if f"`{field}`" not in rows and field != made] == []


# --- the site --------------------------------------------------------------------------------------------------------


def test_every_page_is_in_the_navigation_once() -> None:
    kept = {str(page.relative_to(ROOT)): page.read_text("utf-8") for page in PAGES}
    index = site.laid_out(kept)[site.INDEX]
    named = re.findall(r"^/(\S+)$", index, re.MULTILINE)
    assert sorted(f"{one}.md" for one in named) == sorted(kept.keys() - {site.README})


def test_links_of_the_site_lead_through_the_site() -> None:
    found = {
        "README.md": "[a](docs/a.md#one) [licence](LICENSE) [out](https://example.org)\n```sh\n[b](LICENSE)\n```\n",
        "docs/a.md": "# A\n\n## One\n\n[home](../README.md)\n",
    }
    laid_out = site.laid_out(found)
    first = "[a](/docs/a.md#one) [licence](/source/LICENSE.md) [out](https://example.org)\n```sh\n[b](LICENSE)\n```\n"
    assert laid_out["index.md"].startswith(first)
    assert "[home](/index.md)" in laid_out["docs/a.md"]
    assert "Apache License" in laid_out["source/LICENSE.md"]


def test_what_a_site_would_load_from_outside_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="https://example.org">a link is fine</a><script src="own.js"></script>')
    assert site.from_outside(tmp_path) == []
    (tmp_path / "b.html").write_text('<link rel="stylesheet" href="https://example.org/fonts.css">')
    (tmp_path / "c.css").write_text("body { background: url(https://example.org/x.png) }")
    assert [one.partition(":")[0] for one in site.from_outside(tmp_path)] == ["b.html", "c.css"]


def test_the_gallery_shows_every_picture_that_is_taken_for_it_and_no_other() -> None:
    page = (ROOT / "docs" / "gallery.md").read_text("utf-8")
    shown = set(re.findall(r"\(pictures/console/([a-z-]+)\.png\)", page))
    kept = {one.stem for one in (ROOT / "docs" / "pictures" / "console").glob("*.png")}
    assert shown == GALLERY == kept
