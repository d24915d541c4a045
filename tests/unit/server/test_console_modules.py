"""The modules of the console: who imports whom."""

import re
from graphlib import TopologicalSorter
from posixpath import dirname, join, normpath

from stateward.plugin.registry import installed
from stateward.server.routes.console_routes import page_files

STATIC = re.compile(r'^import\s[^"]*"([^"]+)";', re.MULTILINE)
DYNAMIC = re.compile(r'import\("([^"]+)"\)')
ROOT = "/console/"


def imports() -> dict[str, set[str]]:
    """Return the modules that each module of the page imports, at once or later."""
    modules = {path: file.body.decode() for path, file in page_files(installed()).items() if path.endswith(".js")}
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
    text = {
        path: file.body.decode() for path, file in page_files(installed()).items() if not path.startswith("domains/")
    }
    found = {
        path: name
        for path, body in text.items()
        for name in installed().names
        if path != "index.html" and re.search(rf'"{name}"|/{name}\.js', body)
    }
    assert found == {}


def test_the_page_names_the_module_of_every_domain() -> None:
    page = page_files(installed())["index.html"].body.decode()
    for name in installed().names:
        assert f'data-domain href="/console/domains/{name}.js"' in page


def test_the_page_names_the_style_of_every_domain_that_has_one() -> None:
    page = page_files(installed())["index.html"].body.decode()
    named = set(re.findall(r'rel="stylesheet" href="/console/domains/(\w+)\.css"', page))
    styled = {plugin.name for plugin in installed() if plugin.style}
    assert named == styled != set()
