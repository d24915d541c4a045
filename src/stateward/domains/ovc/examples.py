"""Examples of request bodies and published names of records of the ovc domain, for the OpenAPI document."""

from typing import Any

EXAMPLES: dict[str, Any] = {
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
}

PUBLISHED_NAMES = {
    "BinEntryView": "StayView",
    "MaintenanceRequest": "Maintenance",
    "MigrationRequest": "Migration",
    "ObjectQueueView": "ovc.QueueView",
    "OrphanView": "StrangerView",
    "OvcAcceptedView": "ovc.AskedView",
    "OvcRecoveredView": "ovc.HealedView",
    "OvcStuckView": "ovc.StuckView",
    "QueuedOperationView": "StandingView",
}
"""Names in the OpenAPI document that differ from those in the code: generated clients have types of these names."""
