"""What requests about secrets read of the services that could use them."""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import pytest

from stateward.access import Role
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.secrets import secret_routes
from stateward.domains.systems.secrets.keyring import KeyRing
from stateward.domains.systems.secrets.secret_actions import SecretReader
from stateward.store.port import Store
from stateward.store.records import Object
from tests.readable_routes import open_to_readers

NS = "default"
HOME = f"/api/v1/systems/{NS}/-/secrets"


async def test_creating_and_deleting_a_secret_looks_at_no_service(
    new_store: Callable[[], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Collection[str]] = []

    def recorded(records: Iterable[Object], names: Collection[str]) -> dict[str, list[str]]:
        del records
        asked.append(names)
        return {name: [] for name in names}

    monkeypatch.setattr(secret_routes, "users_by_secret", recorded)
    keys = tmp_path / "keys"
    keys.touch(mode=0o600)
    keys.write_text("11" * 32)
    plugin = SystemsRuntime({"simulated": SimulatedBackend()}, secrets=SecretReader(KeyRing(None, str(keys))))
    async with open_to_readers(new_store(), plugin, NS) as served:
        admin = served.clients[Role.ADMIN]
        made = await admin.post(HOME, json={"name": "db", "value": "hunter2-hunter2"})
        assert (made.status_code, made.json()["used_by"], asked) == (201, [], [])
        assert (await admin.get(f"{HOME}/db")).json() == made.json()
        assert asked == [["db"]]
        deleted = await admin.delete(f"{HOME}/db")
        assert (deleted.status_code, deleted.json(), asked) == (200, made.json(), [["db"]])
