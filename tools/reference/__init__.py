"""The pages of the reference that are written by the code: nobody keeps them, so they are never out of date."""

from collections.abc import Iterator

from tools.reference import api, commands, python_api, settings

FOLDER = "docs/reference"


def pages() -> Iterator[tuple[str, str]]:
    """Yield every page of the reference: its path from the root of the tree, and its text."""
    yield f"{FOLDER}/settings.md", settings.page()
    for name, text in commands.pages():
        yield f"{FOLDER}/commands/{name}.md", text
    for name, text in api.pages(api.description()):
        yield f"{FOLDER}/api/{name}.md", text
    for name, text in python_api.pages():
        yield f"{FOLDER}/python/{name}.md", text
