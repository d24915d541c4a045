"""Examples of request bodies of the leases domain, by the name of the record, for the OpenAPI document."""

from typing import Any

_RESERVATION = {
    "resource_type": "physical:host",
    "min": 1,
    "max": 1,
    "hypervisor_properties": "",
    "resource_properties": '["==", "$rack", "r1"]',
}

EXAMPLES: dict[str, Any] = {
    "NewLease": {
        "name": "night run",
        "start_date": "2027-01-15 22:00",
        "end_date": "2027-01-16 06:00",
        "reservations": [_RESERVATION],
        "events": [],
    },
    "LeaseChange": {"end_date": "2027-01-16 08:00"},
    "PropertyChange": {"private": False},
}
