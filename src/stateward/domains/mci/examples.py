"""Names of records of the mci domain in the OpenAPI document."""

PUBLISHED_NAMES = {
    "ConnectionDetails": "ConnectionOut",
    "MciNamespaceView": "mci.NamespaceView",
    "MciReview": "Review",
    "OperationReply": "Begun",
    "OrphanMachine": "Orphan",
    "OrphanMachines": "Orphans",
    "ResourceView": "PartView",
    "SkippedVm": "Skipped",
}
"""Names in the OpenAPI document that differ from those in the code: generated clients have types of these names."""
