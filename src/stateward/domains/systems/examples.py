"""Examples of request bodies of the systems domain, by the name of the record, for the OpenAPI document."""

from typing import Any

EXAMPLES: dict[str, Any] = {
    "NewSystem": {"name": "shop", "backend": "local"},
    "NewDeploy": {
        "definition": "services:\n  web:\n    command: python3 -m http.server 18420\n    health: {tcp: 18420}\n",
        "path": "/",
        "wait": 30,
    },
    "NewRollback": {"path": "/web"},
    "NewTeardown": {"wait": 30},
}
