"""Examples of request bodies and published names of records of the edge domain, for the OpenAPI document."""

from typing import Any

EXAMPLES: dict[str, Any] = {
    "NewCloudlet": {"name": "berlin", "missing": "recreate", "orphans": "report", "backend": "process"},
    "CloudletChange": {"orphans": "remove"},
    "NewVersion": {"version": "2.1.0", "within": 60.0},
    "NewOwner": {"installation": "0f8fad5bd9cb469fa165708c7a3d3c11"},
    "NewCluster": {"name": "arcade", "flavor": "small", "nodes": 3, "organization": "games"},
    "ClusterChange": {"nodes": 5},
    "NewLoad": {"cpu": 2.5, "mem": 800000000, "connections": 310},
    "NewAppInst": {"app": "match-maker"},
    "AppInstChange": {"count": 2},
    "NewCommand": {"argv": ["ls", "-l"], "within": 60.0},
    "NewDemand": {"requests": {"berlin": 120, "hamburg": 15}},
    "NewFlavor": {"size": "small", "cores": 0.5, "memory": 536870912},
    "NewApp": {
        "command": "python3 -m http.server 8080",
        "organization": "games",
        "count": 1,
        "flavor": "small",
        "probe": {"type": "http", "port": 8080, "path": "/", "interval_s": 10.0},
    },
    "NewAutoscale": {"min": 1, "max": 8, "cpu": 0.8},
    "NewAutoprov": {"cloudlets": ["berlin", "hamburg"], "min": 1, "max": 2, "requests": 50},
}

PUBLISHED_NAMES = {
    "EdgeAcceptedView": "edge.AcceptedView",
    "EdgeOperationView": "edge.OperationView",
}
"""Names in the OpenAPI document that differ from those in the code: generated clients have types of these names."""
