"""Examples of what the domains' routes read, for the API's description, by the name of the record."""

from typing import Any

_RESERVATION = {
    "resource_type": "physical:host",
    "min": 1,
    "max": 1,
    "hypervisor_properties": "",
    "resource_properties": '["==", "$rack", "r1"]',
}

BODIES: dict[str, Any] = {
    # --- edge
    "NewCloudlet": {"name": "berlin", "missing": "recreate", "orphans": "report"},
    "CloudletChange": {"orphans": "remove"},
    "NewVersion": {"version": "2.1.0", "within": 60.0},
    "NewOwner": {"installation": "0f8fad5bd9cb469fa165708c7a3d3c11"},
    "NewCluster": {"name": "arcade", "flavor": "small", "nodes": 3, "organization": "games"},
    "ClusterChange": {"nodes": 5},
    "NewLoad": {"cpu": 72.5, "mem": 40.0, "connections": 310},
    "NewAppInst": {"app": "match-maker"},
    "AppInstChange": {"count": 2},
    "NewDemand": {"requests": {"berlin": 120, "hamburg": 15}},
    "NewFlavor": {"size": "small"},
    "NewApp": {"command": "python3 -m http.server 8080", "organization": "games", "count": 1, "flavor": "small"},
    "NewAutoscale": {"min": 1, "max": 8, "cpu": 80.0},
    "NewAutoprov": {"cloudlets": ["berlin", "hamburg"], "min": 1, "max": 2, "requests": 50},
    # --- ovc
    "NewAccount": {"name": "Acme", "retention": 604800.0},
    "NewCloudspace": {"name": "web shop", "account": "acme"},
    "NewMachine": {"name": "web 1", "cloudspace": "web-shop", "image": "tick", "size": "tiny", "gib": 10},
    "NewDisk": {"name": "archive", "account": "acme", "gib": 50},
    "NewImage": {"name": "our base", "account": "acme", "source": "tick"},
    "NewNode": {"name": "rack 1", "driver": "simulated"},
    "NewClone": {"name": "web 2"},
    "AddedDisk": {"name": "archive", "gib": 50},
    "NamedDisk": {"disk": "archive"},
    "Migration": {"node": "rack-2"},
    "Maintenance": {"vmaction": "move"},
    # --- leases
    "NewLease": {
        "name": "night run",
        "start_date": "2027-01-15 22:00",
        "end_date": "2027-01-16 06:00",
        "reservations": [_RESERVATION],
        "events": [],
    },
    "LeaseChange": {"end_date": "2027-01-16 08:00"},
    "PropertyChange": {"private": False},
    # --- systems
    "NewSystem": {"name": "shop", "backend": "local"},
    "NewDeploy": {
        "definition": "services:\n  web:\n    command: python3 -m http.server 18420\n    health: {tcp: 18420}\n",
        "path": "/",
        "wait": 30,
    },
    "NewRollback": {"path": "/web"},
    "NewTeardown": {"wait": 30},
}
