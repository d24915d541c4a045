"""Credentials: by reference, read anew when they were turned away, and never shown."""

import logging
from pathlib import Path

import pytest

from stateward.credential_fields import CredentialMissing
from stateward.drivers import CallAccepted, CallRefused, CloudResource, ProviderRegion, RefusalReason, ResourceKind
from stateward.drivers.aws import AwsDriver
from stateward.drivers.aws.sdk import connect
from stateward.drivers.aws.settings import Credential, read_credential, read_settings
from tests.integration.drivers.aws.conftest import SECRET, SESSION, MakeDriver
from tests.integration.drivers.aws.ec2_machines import new_machine_specs
from tests.integration.drivers.aws.moto_cloud import MotoCloud
from tests.integration.drivers.cloud_faults import Fault, FaultKind

INI = """
[default]
aws_access_key_id = AKIDINI
aws_secret_access_key = a%secret/with+signs
[night]
aws_access_key_id = AKIDNIGHT
aws_secret_access_key = other
aws_session_token = session
"""
FLAT = '{"aws_access_key_id": "AKIDFLAT", "aws_secret_access_key": "s"}'
NESTED = '{"night": {"aws_access_key_id": "AKIDNEST", "aws_secret_access_key": "s"}}'


@pytest.mark.parametrize(
    ("text", "profile", "access"),
    [(INI, "", "AKIDINI"), (INI, "#night", "AKIDNIGHT"), (FLAT, "", "AKIDFLAT"), (NESTED, "#night", "AKIDNEST")],
)
def test_a_file_is_read_as_ini_or_json_by_profile(tmp_path: Path, text: str, profile: str, access: str) -> None:
    path = tmp_path / "credentials"
    path.write_text(text)
    assert read_credential(f"file:{path}{profile}").keywords()["aws_access_key_id"] == access


def test_no_reference_leaves_it_to_the_sdk() -> None:
    assert read_credential("").keywords() == {}


@pytest.mark.parametrize("reference", ["env:NOBODY", "file:/nowhere/at/all"])
def test_a_reference_to_nothing_is_named(reference: str) -> None:
    with pytest.raises(CredentialMissing) as caught:
        read_credential(reference)
    assert caught.value.reference == reference


@pytest.mark.parametrize(
    "reference", ["AKIDPLAIN:SECRETWORD", "env:SECRET/WORD+", "vault:SECRETWORD", "file:#SECRETWORD"]
)
def test_what_is_no_reference_may_be_a_secret_and_is_not_shown(reference: str) -> None:
    with pytest.raises(CredentialMissing, match="must be env:PREFIX, file:PATH or file:PATH#PROFILE") as caught:
        read_credential(reference)
    assert not [one for one in (str(caught.value), repr(caught.value)) if reference in one or "SECRET" in one]


@pytest.mark.parametrize(
    "text", ["{broken SECRETWORD", "[default\nSECRETWORD = x", "{}", INI.replace("access_key", "x")]
)
def test_a_file_of_another_form_is_refused_without_being_quoted(tmp_path: Path, text: str) -> None:
    path = tmp_path / "credentials"
    path.write_text(text)
    with pytest.raises(CredentialMissing) as caught:
        read_credential(f"file:{path}")
    assert "SECRETWORD" not in str(caught.value)


async def test_a_missing_credential_is_a_refusal_and_nothing_goes_out(make: MakeDriver, cloud: MotoCloud) -> None:
    driver = make(credential="env:NOBODY")
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, cloud.calls.total()) == (RefusalReason.AUTH, 0)
    assert "NOBODY_ACCESS_KEY_ID is not set" in outcome.message
    assert not (await driver.observe()).complete


async def test_a_credential_that_was_renewed_is_read_again(
    make: MakeDriver, cloud: MotoCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, cloud.known_keys = make(), {"AKIDNEW"}
    (refused,) = await driver.create(new_machine_specs(1))
    monkeypatch.setenv("FARM_ACCESS_KEY_ID", "AKIDNEW")
    (accepted,) = await driver.create(new_machine_specs(1))
    assert isinstance(refused, CallRefused)
    assert refused.why is RefusalReason.AUTH
    assert isinstance(accepted, CallAccepted)


async def test_the_sdk_s_own_chain_is_used_without_a_reference(
    make: MakeDriver, cloud: MotoCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDCHAIN")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    cloud.known_keys = {"AKIDCHAIN"}
    assert (await make(credential="").observe()).complete


async def test_signed_headers_in_a_complaint_are_not_told_on_where_the_driver_does_not_know_the_secret(
    make: MakeDriver, cloud: MotoCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ACCESS_KEY_ID", "AKIDCHAIN"), ("SECRET_ACCESS_KEY", "x"), ("SESSION_TOKEN", "chained-token")):
        monkeypatch.setenv(f"AWS_{name}", value)
    complaint = "it does not match.\nx-amz-security-token:chained-token"
    cloud.inject_fault(Fault(FaultKind.ERROR, "RunInstances", "SignatureDoesNotMatch", 403, complaint))
    (outcome,) = await make(credential="").create(new_machine_specs(1))
    assert isinstance(outcome, CallRefused)
    assert outcome.message == "SignatureDoesNotMatch: it does not match."


@pytest.mark.parametrize("name", ["read_timeout", "connect_timeout"])
async def test_an_option_that_is_no_number_is_a_refusal(make: MakeDriver, name: str) -> None:
    (outcome,) = await make(**{name: "soon"}).create(new_machine_specs(1))
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, name in outcome.message) == (RefusalReason.INVALID, True)


@pytest.mark.parametrize(
    ("endpoint_url", "credential"),
    [
        ("nonsense", "env:FARM"),
        ("http://[", "env:FARM"),
        ("http://ec2.example", "env:FARM"),
        ("http://192.0.2.1", "env:FARM"),
        ("https://ec2.example", ""),
        ("https://evilamazonaws.com", ""),
        ("https://127.0.0.1.amazonaws.com.example", ""),
    ],
)
async def test_an_endpoint_that_is_none_or_not_safe_for_the_credential_is_a_refusal(
    make: MakeDriver, endpoint_url: str, credential: str
) -> None:
    (outcome,) = await make(credential, endpoint_url=endpoint_url).create(new_machine_specs(1))
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, "endpoint_url" in outcome.message) == (RefusalReason.INVALID, True)


@pytest.mark.parametrize(
    ("endpoint_url", "credential"),
    [
        ("https://ec2.example", "env:FARM"),
        ("http://127.0.0.1:1", ""),
        ("https://vpce-1.ec2.eu-west-1.vpce.amazonaws.com", ""),
    ],
)
def test_an_endpoint_over_tls_on_this_host_or_of_aws_is_used(endpoint_url: str, credential: str) -> None:
    place = ProviderRegion("aws", "eu-west-1", credential=credential, options={"endpoint_url": endpoint_url})
    client = connect(read_settings(place), Credential("AKID", "x"), 1)
    assert client.meta.endpoint_url == endpoint_url
    client.close()


async def test_secrets_are_in_no_log_no_message_and_no_repr(
    driver: AwsDriver, cloud: MotoCloud, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[object] = [driver, vars(driver), Credential("AKIDFARM", SECRET, SESSION)]
    made = await driver.ensure(CloudResource(ResourceKind.SSH_KEY, "ssh-key", "key"))
    assert isinstance(made, CallAccepted)
    private = made.secret.splitlines()[1]
    for message in (f"it echoes {SECRET} and {SESSION}", f"it signs\nx-amz-security-token:{SESSION}"):
        cloud.inject_fault(Fault(FaultKind.ERROR, "RunInstances", "SignatureDoesNotMatch", 403, message))
        told += await driver.create(new_machine_specs(1))
    told += [await driver.observe(), vars(driver._calls)]
    written = caplog.text + repr(told)
    assert "it echoes (hidden)" in written
    assert [secret for secret in (SECRET, SESSION, private) if secret in written] == []
