"""Logins to the test cloud, and machines in it: creating them, and waiting for their states."""

import pytest

from tests.integration.drivers.cloud_machines import CloudMachines

SPEC = "m1.tiny"
IMAGE = "155d900f-4e14-4e4c-a73d-069cbf4541e6"
PASSWORD = "very/secret+word"
PAUSE_S = 0.3
"""The time between two listings: each takes time from the Nova that it looks at."""


def set_login(monkeypatch: pytest.MonkeyPatch, url: str, project: str, prefix: str = "TEST_CLOUD") -> None:
    """Put a login for a project into the environment."""
    login = {
        "AUTH_URL": f"{url}/identity/v3",
        "USERNAME": f"user-of-{project}",  # key pairs belong to a user
        "PASSWORD": PASSWORD,
        "PROJECT_NAME": project,
        "USER_DOMAIN_ID": "default",
        "PROJECT_DOMAIN_ID": "default",
    }
    for name, value in login.items():
        monkeypatch.setenv(f"{prefix}_{name}", value)


_machines = CloudMachines(SPEC, IMAGE, pause_s=PAUSE_S)
new_machine_specs, create_machines = _machines.new_specs, _machines.create
wait_for_state, wait_until_gone = _machines.wait_for_state, _machines.wait_until_gone
