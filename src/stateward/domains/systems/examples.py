"""Examples of request bodies and published names of records of the systems domain, for the OpenAPI document."""

from typing import Any

EXAMPLES: dict[str, Any] = {
    "NewSystem": {"name": "shop", "backend": "local"},
    "NewDeploy": {
        "definition": "services:\n  web:\n    command: python3 -m http.server 18420\n    health: {tcp: 18420}\n",
        "path": "/",
        "wait": 30,
    },
    "NewInstanceCommand": {"path": "/web", "argv": ["ls", "-l"], "timeout": 10},
    "NewRollback": {"path": "/web"},
    "NewTeardown": {"wait": 30},
    "NewSystemNode": {"name": "host-1", "labels": {"zone": "a"}},
    "NewSecret": {"name": "db-password", "value": "a value that no response shows"},
    "NewSecretValue": {"value": "a value that no response shows"},
    "NamedJob": {"path": "/report"},
}

PUBLISHED_NAMES = {
    "AskedView": "systems.AskedView",
    "HealthCheck": "systems.Health",
    "LogExcerpt": "Excerpt",
    "SystemLockView": "systems.LockView",
}
"""Names in the OpenAPI document that differ from those in the code: generated clients have types of these names."""
