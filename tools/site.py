"""Build the documentation: `python -m tools.site`. Warnings are errors, and so is anything loaded from outside.

The pages are written for whoever reads the tree, so their links lead through the tree: to other pages, to code, to
tests. The site has the same layout, with a page for each piece of code that is linked to, and with the pages of the
reference, which the code writes. Its first page is the README.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os.path import relpath
from pathlib import Path

from stateward.plugin.registry import installed
from tools.reference import pages as reference

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "docs"
INDEX = "index.md"
README = "README.md"
GUIDE = "src/stateward/server/pages/guide.md"  # the server shows it, too
CODE = "source"

NAVIGATION: Mapping[str, Sequence[str]] = {
    "Start": ("docs/tutorial.md", "docs/own-domain.md", "docs/howto/install.md", "docs/compare.md", "docs/glossary.md"),
    "How to": (
        "docs/howto/lifecycle.md",
        "docs/howto/job.md",
        "docs/howto/plugin.md",
        "docs/howto/test.md",
        "docs/howto/driver.md",
        "docs/howto/agent.md",
        "docs/howto/console-module.md",
        "deploy/README.md",
        "deploy/postgresql.md",
        "docs/howto/failover.md",
        "docs/howto/upgrade.md",
        "docs/howto/backup.md",
        "docs/howto/secure.md",
        "docs/howto/operate.md",
        "docs/howto/history.md",
        "docs/howto/gitops.md",
    ),
    "Domains": [f"docs/{name}.md" for name in installed().names],
    "People": ("docs/cli.md", "docs/cheat-sheet.md", "docs/console.md", "docs/gallery.md", GUIDE),
    "Reference": (
        "docs/domains/*.md",
        "docs/reference/settings.md",
        "docs/reference/commands/*.md",
        "docs/reference/api/*.md",
        "docs/reference/python/*.md",
    ),
    "Design": ("docs/design.md", "docs/promises.md", "docs/*.md"),
    "Decisions": ("docs/decisions/README.md", "docs/decisions/*.md"),
    "The project": ("CONTRIBUTING.md", "CHANGELOG.md"),
}
"""The order of the pages; a pattern stands for those that nobody has named."""

LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
OUTSIDE = re.compile(
    r"""<(?:script|img|iframe|source|link)\b[^>]*?\s(?:src|href)=["']?(?:https?:)?//|url\(["']?https?://"""
)
LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".service": "ini"}


def pages() -> dict[str, str]:
    """Return every page of the site: its path, and its text as it is in the tree or as the code writes it."""
    kept = [README, GUIDE, "CONTRIBUTING.md", "CHANGELOG.md"]
    kept += [str(one.relative_to(ROOT)) for folder in ("docs", "deploy") for one in (ROOT / folder).rglob("*.md")]
    return {name: (ROOT / name).read_text("utf-8") for name in kept} | dict(reference())


def laid_out(found: Mapping[str, str]) -> dict[str, str]:
    """Return the pages as Sphinx is to read them, with those of the code that they link to, and the navigation."""
    linked: dict[str, None] = {}
    result = {name: _with_links(name, text, found, linked) for name, text in found.items()}
    result[INDEX] = result.pop(README) + "\n" + "\n".join(_toctrees(sorted(result)))
    shown = {_code_page(name): _code(name) for name in linked}
    contents = "".join(f"- [{name}](/{_code_page(name)})\n" for name in sorted(linked))
    return result | shown | {f"{CODE}/README.md": f"---\norphan: true\n---\n\n# Code\n\n{contents}"}


# --- links -----------------------------------------------------------------------------------------------------------


def _with_links(name: str, text: str, found: Mapping[str, str], linked: dict[str, None]) -> str:
    """Lead the links of a page to pages; notes what code they are about."""

    def led(match: re.Match[str]) -> str:
        target, _, anchor = match[2].partition("#")
        if not target or "://" in target:
            return match[0]
        path = _path(name, target)
        if path == README:
            path = INDEX
        elif path not in found and (ROOT / path).exists() and "/pictures/" not in path:
            linked[path] = None
            path = _code_page(path)
        return f"{match[1]}/{path}{'#' if anchor else ''}{anchor}{match[3]}"

    return _outside_of_fences(LINK, led, text)


def _path(page: str, target: str) -> str:
    """Return where a link of a page leads, from the root of the tree."""
    return relpath((ROOT / page).parent / target, ROOT)


def _outside_of_fences(pattern: re.Pattern[str], change: object, text: str) -> str:
    parts = FENCED.split(text)
    fences = [*FENCED.findall(text), ""]
    return "".join(pattern.sub(change, part) + fence for part, fence in zip(parts, fences, strict=True))  # type: ignore[call-overload]


# --- pages of code ---------------------------------------------------------------------------------------------------


def _code_page(path: str) -> str:
    return f"{CODE}/{path}.md"


def _code(path: str) -> str:
    """Return a page with a file, or with the files of a folder."""
    whole = ROOT / path
    files = sorted(one for one in whole.iterdir() if one.is_file()) if whole.is_dir() else [whole]
    shown = [f"## {one.name}\n\n{_fenced(one)}" for one in files] if whole.is_dir() else [_fenced(whole)]
    return "---\norphan: true\n---\n\n" + "\n\n".join([f"# {path}", *shown]) + "\n"


def _fenced(file: Path) -> str:
    return f"``````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text('utf-8').rstrip()}\n``````"


# --- navigation ------------------------------------------------------------------------------------------------------


def _toctrees(names: Sequence[str]) -> Iterator[str]:
    named = {one for patterns in NAVIGATION.values() for one in patterns}
    for caption, patterns in NAVIGATION.items():
        chosen = dict.fromkeys(one for pattern in patterns for one in _matching(pattern, names, named))
        entries = "".join(f"/{one.removesuffix('.md')}\n" for one in chosen)
        yield f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}```\n"


def _matching(pattern: str, names: Sequence[str], named: Iterable[str]) -> list[str]:
    if "*" not in pattern:
        return [pattern] if pattern in names else []
    folder = pattern.removesuffix("*.md")
    return [one for one in names if one.startswith(folder) and "/" not in one.removeprefix(folder) and one not in named]


# --- building --------------------------------------------------------------------------------------------------------


def write(found: Mapping[str, str], folder: Path) -> None:
    """Lay the pages and their pictures out in a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in found.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    for pictures in (ROOT / "docs" / "pictures", *(ROOT / "src/stateward/domains").glob("*/pictures")):
        shutil.copytree(pictures, folder / pictures.relative_to(ROOT))


def from_outside(site: Path) -> list[str]:
    """Return what a built site would load from elsewhere."""
    files = [*site.rglob("*.html"), *site.rglob("*.css")]
    return [
        f"{file.relative_to(site)}: {found[0]}" for file in files for found in OUTSIDE.finditer(file.read_text("utf-8"))
    ]


def main() -> None:
    """Build the site, or fail and say why."""
    source, site = BUILD / "source", BUILD / "site"
    write(laid_out(pages()), source)
    strict = ("-W", "--keep-going", "-q", "-E", "-b", "html")
    words = [sys.executable, "-m", "sphinx", *strict, "-c", str(ROOT / "docs"), str(source), str(site)]
    shutil.rmtree(site, ignore_errors=True)
    if subprocess.run(words, check=False).returncode:
        sys.exit("The documentation has faults; they are named above.")
    if outside := from_outside(site):
        sys.exit("\n".join(["The site would load this from outside:", *outside]))
    print(f"{site.relative_to(ROOT)}/{INDEX.replace('.md', '.html')}")


if __name__ == "__main__":
    main()
