"""The published names of the API: components and operation ids of its description are those of a stored list.

Generated clients have types and functions of these names, so the rename of a class or of a handler must not change
them. A record that gets another name in the code keeps its name in the description by `PUBLISHED_NAMES`, in
`stateward.server.openapi.description` or in the module `examples` of its domain. After a change on purpose, such as a
new route:

    python -m tests.integration.server.test_published_names
"""

import json
from pathlib import Path
from typing import Any

from tools.reference.api import description

PUBLISHED = Path(__file__).with_name("published_names.json")


def names_of(document: dict[str, Any]) -> dict[str, Any]:
    """Return the names of a description: its components, and the operation id of each route."""
    operations = {
        f"{method.upper()} {path}": operation["operationId"]
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }
    components = {kind: sorted(several) for kind, several in document["components"].items()}
    return {"components": components, "operations": dict(sorted(operations.items()))}


def test_components_and_operation_ids_have_their_published_names() -> None:
    assert names_of(description()) == json.loads(PUBLISHED.read_text("utf-8"))


if __name__ == "__main__":
    PUBLISHED.write_text(json.dumps(names_of(description()), indent=1) + "\n", "utf-8")
