"""Draw the pages of the domains from the code: docs/domains/*.md and docs/pictures/*.svg; --check only compares."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from stateward.domains.registry import DOMAINS
from stateward.lifecycle import Lifecycle
from stateward.lifecycle.render import markdown, svg

DOCS = Path(__file__).resolve().parent.parent / "docs"


def pages() -> Iterator[tuple[Path, str]]:
    """Yield every drawn file with its content."""
    for domain in DOMAINS:
        yield DOCS / "domains" / f"{_name(domain)}.md", _page(domain)
        for lifecycle in domain.LIFECYCLES:
            yield DOCS / "pictures" / f"{lifecycle.kind}.svg", svg(lifecycle)


def _page(domain: ModuleType) -> str:
    module = sys.modules[f"{domain.__name__}.lifecycle"]
    told = [f"# {_name(domain)}", inspect.getdoc(domain) or "", inspect.getdoc(module) or ""]
    drawn = [_section(lifecycle) for lifecycle in domain.LIFECYCLES]
    return "\n\n".join([*told, *drawn, "This page is drawn from the code by `make draw`."]) + "\n"


def _section(lifecycle: Lifecycle) -> str:
    picture = f"![The lifecycle of {lifecycle.kind}](../pictures/{lifecycle.kind}.svg)"
    return f"## {lifecycle.kind}: {lifecycle.declaration.about}\n\n{picture}\n\n{markdown(lifecycle)}".rstrip()


def _name(domain: ModuleType) -> str:
    return domain.__name__.rsplit(".", 1)[-1]


def main() -> None:
    """Write what has changed; with --check, fail if anything has."""
    stale = [(path, text) for path, text in pages() if not path.exists() or path.read_text("utf-8") != text]
    for path, text in stale:
        print(path.relative_to(DOCS.parent))
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    if stale and "--check" in sys.argv:
        sys.exit("These pages are not what the code says; run: make draw")


if __name__ == "__main__":
    main()
