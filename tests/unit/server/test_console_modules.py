"""The modules of the console: who imports whom."""

import re
from graphlib import TopologicalSorter
from importlib.resources import files
from pathlib import Path
from posixpath import dirname, join, normpath

from stateward.domains.registry import DOMAINS_BY_NAME
from stateward.server.routes.console_routes import page_files

STATIC = re.compile(r'^import\s[^"]*"([^"]+)";', re.MULTILINE)
DYNAMIC = re.compile(r'import\("([^"]+)"\)')
ROOT = "/console/"


def imports() -> dict[str, set[str]]:
    """Return the modules that each module of the page imports, at once or later."""
    modules = {path: file.body.decode() for path, file in page_files().items() if path.endswith(".js")}
    return {
        path: {_resolved(path, one) for one in (*STATIC.findall(text), *DYNAMIC.findall(text))}
        for path, text in modules.items()
    }


def _resolved(path: str, imported: str) -> str:
    return normpath(join(ROOT, dirname(path), imported)).removeprefix(ROOT)


def test_modules_import_each_other_without_a_cycle() -> None:
    order = list(TopologicalSorter(imports()).static_order())
    assert order.index("core/links.js") < order.index("ui/components.js") < order.index("core/routes.js")


def test_every_import_is_a_file_of_the_page() -> None:
    graph = imports()
    assert {one for found in graph.values() for one in found} <= graph.keys()


def test_no_module_names_a_domain() -> None:
    text = {path: file.body.decode() for path, file in page_files().items() if not path.startswith("domains/")}
    found = {
        path: name
        for path, body in text.items()
        for name in DOMAINS_BY_NAME
        if path != "index.html" and re.search(rf'"{name}"|/{name}\.js', body)
    }
    assert found == {}


def test_the_page_names_the_module_of_every_domain() -> None:
    page = page_files()["index.html"].body.decode()
    for name, domain in DOMAINS_BY_NAME.items():
        assert Path(str(files(domain) / "console.js")).is_file()
        assert f'data-domain href="/console/domains/{name}.js"' in page


def test_the_page_names_the_style_of_every_domain_that_has_one() -> None:
    page = page_files()["index.html"].body.decode()
    named = set(re.findall(r'rel="stylesheet" href="/console/domains/(\w+)\.css"', page))
    styled = {name for name, domain in DOMAINS_BY_NAME.items() if (files(domain) / "console.css").is_file()}
    assert named == styled != set()
