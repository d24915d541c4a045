"""Credentials: by reference, read anew when they were turned away, never shown, and sent to Azure alone."""

import logging
from pathlib import Path

import pytest

from stateward.credential_fields import CredentialMissing
from stateward.drivers import CallAccepted, CallRefused, CloudResource, RefusalReason, ResourceKind, TransientFailure
from stateward.drivers.azure import AzureDriver
from stateward.drivers.azure.settings import ServicePrincipal, read_principal
from tests.integration.drivers.azure.arm_cloud import SUBSCRIPTION, ArmCloud
from tests.integration.drivers.azure.azure_machines import new_machine_specs
from tests.integration.drivers.azure.conftest import SECRET, MakeDriver
from tests.integration.drivers.cloud_faults import Fault, FaultKind

INI = """
[default]
tenant_id = t
client_id = ini
client_secret = a%secret/with+signs
subscription_id = s
[night]
tenant_id = t
client_id = night
client_secret = other
subscription_id = s
"""
NESTED = '{"night": {"tenant_id": "t", "client_id": "nested", "client_secret": "x", "subscription_id": "s"}}'


@pytest.mark.parametrize(
    ("text", "profile", "client"), [(INI, "", "ini"), (INI, "#night", "night"), (NESTED, "#night", "nested")]
)
def test_a_file_is_read_as_ini_or_json_by_profile(tmp_path: Path, text: str, profile: str, client: str) -> None:
    path = tmp_path / "credentials"
    path.write_text(text)
    principal = read_principal(f"file:{path}{profile}")
    assert (principal.client, principal.subscription, principal.is_default) == (client, "s", False)


def test_no_reference_leaves_it_to_the_library_but_for_the_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_SUBSCRIPTION_ID", raising=False)
    with pytest.raises(CredentialMissing, match="AZURE_SUBSCRIPTION_ID is not set"):
        read_principal("")
    monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", "s")
    assert (read_principal("").is_default, read_principal("").subscription) == (True, "s")


@pytest.mark.parametrize("reference", ["plain:SECRETWORD", "env:SECRET/WORD+", "vault:SECRETWORD", "file:#SECRETWORD"])
def test_what_is_no_reference_may_be_a_secret_and_is_not_shown(reference: str) -> None:
    with pytest.raises(CredentialMissing, match="must be env:PREFIX, file:PATH or file:PATH#PROFILE") as caught:
        read_principal(reference)
    assert not [one for one in (str(caught.value), repr(caught.value)) if reference in one or "SECRET" in one]


async def test_a_missing_credential_is_a_refusal_and_nothing_goes_out(make: MakeDriver, cloud: ArmCloud) -> None:
    driver = make(credential="env:NOBODY")
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, cloud.calls.total()) == (RefusalReason.AUTH, 0)
    assert "NOBODY_TENANT_ID is not set" in outcome.message
    assert not (await driver.observe()).complete


async def test_a_credential_that_was_renewed_is_read_again(
    make: MakeDriver, cloud: ArmCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, cloud.known_clients = make(), {"new"}
    (refused,) = await driver.create(new_machine_specs(1))
    monkeypatch.setenv("FARM_CLIENT_ID", "new")
    (accepted,) = await driver.create(new_machine_specs(1))
    assert isinstance(refused, CallRefused)
    assert refused.why is RefusalReason.AUTH
    assert isinstance(accepted, CallAccepted)


async def test_many_calls_with_a_rejected_credential_leave_no_connection_open(
    make: MakeDriver, cloud: ArmCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, cloud.known_clients = make(), {"new"}
    for _ in range(3):
        outcomes = await driver.create(new_machine_specs(5))
        assert {getattr(one, "why", None) for one in outcomes} == {RefusalReason.AUTH}
    monkeypatch.setenv("FARM_CLIENT_ID", "new")
    assert (await driver.observe()).complete


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("read_timeout", "soon"),
        ("connect_timeout", "-1"),
        ("poll_interval", "inf"),
        ("public_address", "perhaps"),
        ("resource_group", ""),
        ("endpoint_url", "nonsense"),
        ("endpoint_url", "http://management.example"),
        ("endpoint_url", "http://192.0.2.1"),
    ],
)
async def test_a_bad_option_is_a_refusal_that_names_it(make: MakeDriver, option: str, value: str) -> None:
    (outcome,) = await make(**{option: value}).create(new_machine_specs(1))
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, option in outcome.message) == (RefusalReason.INVALID, True)


@pytest.mark.parametrize("endpoint_url", ["https://127.0.0.1:1", "https://localhost:1"])
async def test_an_https_endpoint_gets_no_simulated_token_and_no_request_without_a_real_one(
    make: MakeDriver, monkeypatch: pytest.MonkeyPatch, endpoint_url: str
) -> None:
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "https://127.0.0.1:1")
    (outcome,) = await make(endpoint_url=endpoint_url).create(new_machine_specs(1))
    assert isinstance(outcome, TransientFailure)
    assert outcome.message.startswith("no token: ")


async def test_a_tenant_that_is_none_is_a_refusal(make: MakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARM_TENANT_ID", "no tenant/at all")
    (outcome,) = await make().create(new_machine_specs(1))
    assert isinstance(outcome, CallRefused)
    assert SECRET not in outcome.message


async def test_secrets_are_in_no_log_no_message_and_no_repr(
    driver: AzureDriver, cloud: ArmCloud, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[object] = [driver, vars(driver), ServicePrincipal("t", "c", SECRET, SUBSCRIPTION)]
    made = await driver.ensure(CloudResource(ResourceKind.SSH_KEY, "ssh-key", "key"))
    assert isinstance(made, CallAccepted)
    private = made.secret.splitlines()[1]
    cloud.inject_fault(Fault(FaultKind.ERROR, "PUT virtualMachines", "Conflict", 409, f"it echoes {SECRET}\nmore"))
    told += await driver.create(new_machine_specs(1))
    told += [await driver.observe(), vars(driver._calls), await driver.list_resources()]
    written = caplog.text + repr(told)
    assert "it echoes (hidden)" in written
    assert [secret for secret in (SECRET, private, "Bearer") if secret in written] == []
