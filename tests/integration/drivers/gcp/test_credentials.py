"""Credentials: by reference, read anew when they were turned away, sent to one place alone, and never shown."""

import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from stateward.credential_fields import CredentialMissing
from stateward.drivers import CallAccepted, CallRefused, CloudResource, RefusalReason, ResourceKind
from stateward.drivers.gcp import GcpDriver
from stateward.drivers.gcp.settings import read_service_account
from tests.integration.drivers.cloud_faults import Fault, FaultKind
from tests.integration.drivers.gcp.conftest import EMAIL, KEY_ID, MakeGcpDriver, account_file, private_key
from tests.integration.drivers.gcp.gce_cloud import GceCloud
from tests.integration.drivers.gcp.gce_test_machines import create_machines, new_machine_specs
from tests.integration.drivers.gcp.gce_world import PROJECT


async def refusal_of(driver: GcpDriver) -> CallRefused:
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, CallRefused), outcome
    return outcome


def test_a_reference_is_a_file_or_a_variable_with_its_path_or_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "account.json"
    path.write_text(account_file())
    monkeypatch.setenv("HILL_SERVICE_ACCOUNT", str(path))
    monkeypatch.setenv("DUNE_SERVICE_ACCOUNT", account_file())
    accounts = [read_service_account(reference) for reference in (f"file:{path}", "env:HILL", "env:DUNE")]
    assert [(account.fields() or {})["client_email"] for account in accounts] == [EMAIL] * 3
    assert [account.project for account in accounts] == [PROJECT] * 3


def test_no_reference_leaves_it_to_the_library() -> None:
    assert read_service_account("").fields() is None


@pytest.mark.parametrize("reference", ["env:NOBODY", "file:/nowhere/at/all"])
def test_a_reference_to_nothing_is_named(reference: str) -> None:
    with pytest.raises(CredentialMissing) as caught:
        read_service_account(reference)
    assert caught.value.reference == reference


@pytest.mark.parametrize(
    "reference", ["SECRETWORD", "env:SECRET/WORD+", "vault:SECRETWORD", '{"private_key":"SECRET"}']
)
def test_what_is_no_reference_may_be_a_secret_and_is_not_shown(reference: str) -> None:
    with pytest.raises(CredentialMissing, match="must be env:PREFIX or file:PATH") as caught:
        read_service_account(reference)
    assert not [one for one in (str(caught.value), repr(caught.value)) if "SECRET" in one]


@pytest.mark.parametrize(
    "text",
    ["{broken SECRETWORD", "SECRETWORD", "{}", '{"type":"authorized_user","refresh_token":"SECRETWORD"}'],
)
def test_a_file_of_another_form_is_refused_without_being_quoted(tmp_path: Path, text: str) -> None:
    path = tmp_path / "account.json"
    path.write_text(text)
    with pytest.raises(CredentialMissing) as caught:
        read_service_account(f"file:{path}")
    assert "SECRETWORD" not in str(caught.value)


async def test_a_service_account_signs_the_calls(driver: GcpDriver, cloud: GceCloud) -> None:
    await create_machines(driver, 1)
    assert cloud.callers == {EMAIL}


async def test_a_missing_credential_is_a_refusal_and_nothing_goes_out(make: MakeGcpDriver, cloud: GceCloud) -> None:
    driver = make(credential="env:NOBODY")
    refusal = await refusal_of(driver)
    assert (refusal.why, cloud.calls.total()) == (RefusalReason.AUTH, 0)
    assert "NOBODY_SERVICE_ACCOUNT is not set" in refusal.message
    assert not (await driver.observe()).complete


async def test_a_key_that_is_none_is_a_refusal_that_does_not_quote_it(
    make: MakeGcpDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARM_SERVICE_ACCOUNT", account_file(private_key="SECRETWORD"))
    refusal = await refusal_of(make())
    assert (refusal.why, "SECRETWORD" in refusal.message) == (RefusalReason.AUTH, False)


async def test_an_account_that_was_renewed_is_read_again(
    make: MakeGcpDriver, cloud: GceCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, cloud.known_accounts = make(), {"new@acme-lab.example"}
    assert (await refusal_of(driver)).why is RefusalReason.AUTH
    monkeypatch.setenv("FARM_SERVICE_ACCOUNT", account_file("new@acme-lab.example"))
    assert isinstance((await driver.create(new_machine_specs(1)))[0], CallAccepted)


async def test_without_a_credential_only_a_simulator_is_called(make: MakeGcpDriver, cloud: GceCloud) -> None:
    assert (await make(credential="", anonymous="true", project=PROJECT).observe()).complete
    assert cloud.callers == {""}
    refusal = await refusal_of(make(credential="", anonymous="true", project=PROJECT, endpoint_url=""))
    assert (refusal.why, "Google needs a credential" in refusal.message) == (RefusalReason.INVALID, True)


async def test_a_simulator_that_wants_a_credential_refuses_a_caller_without_one(
    make: MakeGcpDriver, cloud: GceCloud
) -> None:
    cloud.known_accounts = {EMAIL}
    refusal = await refusal_of(make(credential="", anonymous="true", project=PROJECT))
    assert refusal.why is RefusalReason.AUTH


async def test_the_server_s_own_credential_is_not_sent_to_an_address_of_the_user_s_choice(
    make: MakeGcpDriver, cloud: GceCloud
) -> None:
    refusal = await refusal_of(make(credential=""))
    assert (refusal.why, cloud.calls.total()) == (RefusalReason.INVALID, 0)
    assert "for Google alone" in refusal.message


async def test_the_library_s_own_chain_is_used_without_a_reference(
    make: MakeGcpDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "account.json"
    path.write_text(account_file(project_id="chained"))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    assert (await make(credential="", endpoint_url="")._calls.settings()).project == "chained"


async def test_a_chain_without_a_credential_is_a_refusal(
    make: MakeGcpDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    assert (await refusal_of(make(credential="", endpoint_url=""))).why is RefusalReason.AUTH


@pytest.mark.parametrize(
    "url", ["http://cloud.example:80", "http://10.0.0.1", "nonsense", "ftp://127.0.0.1", "http://["]
)
async def test_a_credential_is_not_sent_in_clear_over_a_network(make: MakeGcpDriver, url: str) -> None:
    refusal = await refusal_of(make(endpoint_url=url))
    assert (refusal.why, "endpoint_url" in refusal.message) == (RefusalReason.INVALID, True)


async def test_nothing_is_sent_to_any_other_host(driver: GcpDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, resolve = set(), socket.getaddrinfo

    def watch(host: Any, *args: Any, **more: Any) -> Any:
        asked.add(host)
        return resolve(host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", watch)
    await create_machines(driver, 3)
    assert asked == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("read_timeout", "soon"), ("connect_timeout", "-1"), ("operation_timeout", "inf"), ("public_address", "maybe")],
)
async def test_an_option_that_is_none_is_a_refusal(make: MakeGcpDriver, name: str, value: str) -> None:
    refusal = await refusal_of(make(**{name: value}))
    assert (refusal.why, name in refusal.message) == (RefusalReason.INVALID, True)


@pytest.mark.parametrize("zone", ["", "us-east1-b", "europe-west4"])
async def test_a_region_without_a_zone_of_it_is_a_refusal(make: MakeGcpDriver, zone: str) -> None:
    refusal = await refusal_of(make(zone=zone))
    assert (refusal.why, "europe-west4-b" in refusal.message) == (RefusalReason.INVALID, True)


async def test_a_project_that_nobody_names_is_a_refusal(make: MakeGcpDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARM_SERVICE_ACCOUNT", account_file(project_id=""))
    assert "project" in (await refusal_of(make())).message
    assert (await make(project=PROJECT).observe()).complete


async def test_secrets_are_in_no_log_no_message_and_no_repr(
    driver: GcpDriver, cloud: GceCloud, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    lines = [line for line in private_key().splitlines() if "KEY" not in line]
    told: list[object] = [driver, vars(driver), read_service_account("env:FARM")]
    made = await driver.ensure(CloudResource(ResourceKind.SSH_KEY, "ssh-key", "key"))
    assert isinstance(made, CallAccepted)
    for message in (f"it echoes {lines[0]} and {KEY_ID}", f"it repeats\n{private_key()}"):
        cloud.inject_fault(Fault(FaultKind.ERROR, "instances.insert", "forbidden", 403, message))
        told += await driver.create(new_machine_specs(1))
    told += [await driver.observe(), vars(driver._calls), made, cloud.world.metadata]
    written = caplog.text + repr(told)
    assert "it echoes (hidden) and (hidden)" in written
    assert [secret for secret in (*lines, KEY_ID, made.secret.splitlines()[1], "Bearer ey") if secret in written] == []
