"""Draw the domains from the code: docs/domains/*.md, and the pictures in their packages; --check only compares."""

import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from stateward.lifecycle import Lifecycle
from stateward.lifecycle.render import markdown, svg
from stateward.plugin import DomainPlugin
from stateward.plugin.registry import installed

ROOT = Path(__file__).resolve().parent.parent
PICTURES = "src/stateward/domains/{}/pictures/{}.svg"


def pages() -> Iterator[tuple[Path, str]]:
    """Yield every drawn file with its content."""
    for plugin in installed():
        yield ROOT / "docs" / "domains" / f"{plugin.name}.md", _page(plugin)
        for lifecycle in plugin.all_lifecycles:
            yield ROOT / PICTURES.format(plugin.name, lifecycle.kind), svg(lifecycle)


def _page(plugin: DomainPlugin) -> str:
    package = f"stateward.domains.{plugin.name}"
    told = [inspect.getdoc(import_module(name)) or "" for name in (package, f"{package}.lifecycle")]
    drawn = [_section(plugin.name, lifecycle) for lifecycle in plugin.all_lifecycles]
    return "\n\n".join([f"# {plugin.name}", *told, *drawn, "This page is drawn from the code by `make draw`."]) + "\n"


def _section(domain: str, lifecycle: Lifecycle) -> str:
    picture = f"![The lifecycle of {lifecycle.kind}](../../{PICTURES.format(domain, lifecycle.kind)})"
    return f"## {lifecycle.kind}: {lifecycle.declaration.about}\n\n{picture}\n\n{markdown(lifecycle)}".rstrip()


def main() -> None:
    """Write what has changed; with --check, fail if anything has."""
    stale = [(path, text) for path, text in pages() if not path.exists() or path.read_text("utf-8") != text]
    for path, text in stale:
        print(path.relative_to(ROOT))
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    if stale and "--check" in sys.argv:
        sys.exit("These pages are not what the code says; run: make draw")


if __name__ == "__main__":
    main()
