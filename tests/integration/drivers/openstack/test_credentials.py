"""Logins: by reference, read anew when they were turned away, and never shown."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from stateward.credential_fields import CredentialMissing
from stateward.drivers import CallAccepted, CallRefused, CloudResource, RefusalReason, ResourceKind
from stateward.drivers.builtin_drivers import openstack
from stateward.drivers.openstack import OpenStackDriver
from stateward.drivers.openstack.settings import KeystoneLogin, read_login
from tests.integration.drivers.openstack.breaking_proxy import BreakingProxy, BreakKind
from tests.integration.drivers.openstack.conftest import MakeDriver
from tests.integration.drivers.openstack.nova_worlds import PASSWORD, new_machine_specs

CLOUDS = """
clouds:
  day:
    auth:
      auth_url: https://day.example/v3
      username: alice
      password: "a%secret/with+signs"
      project_name: demo
    region_name: ignored
    cacert: /etc/day.pem
  night:
    auth_type: v3applicationcredential
    auth: {auth_url: "https://night.example/v3", application_credential_id: id1, application_credential_secret: s1}
    verify: false
    interface: internal
"""
ONE = "clouds: {only: {auth: {auth_url: 'https://one.example/v3', username: u, password: 7}}}"


def written(folder: Path, text: str) -> str:
    path = folder / "clouds.yaml"
    path.write_text(text)
    return f"file:{path}"


def test_a_cloud_of_a_file_is_read_by_its_name(tmp_path: Path) -> None:
    reference = written(tmp_path, CLOUDS)
    day, night = read_login(f"{reference}#day"), read_login(f"{reference}#night")
    assert day.keywords()["password"] == "a%secret/with+signs"
    assert (day.verify, day.interface, day.is_application) == ("/etc/day.pem", "public", False)
    assert night.keywords()["application_credential_secret"] == "s1"
    assert (night.verify, night.interface, night.is_application) == (False, "internal", True)


def test_the_only_cloud_of_a_file_needs_no_name(tmp_path: Path) -> None:
    assert read_login(written(tmp_path, ONE)).keywords()["password"] == "7"


@pytest.mark.parametrize("reference", ["env:NOBODY", "file:/nowhere/at/all"])
def test_a_reference_to_nothing_is_named(reference: str) -> None:
    with pytest.raises(CredentialMissing) as caught:
        read_login(reference)
    assert caught.value.reference == reference


@pytest.mark.parametrize("reference", ["alice:SECRETWORD", "vault:SECRETWORD", "file:#SECRETWORD"])
def test_what_is_no_reference_may_be_a_secret_and_is_not_shown(reference: str) -> None:
    with pytest.raises(CredentialMissing) as caught:
        read_login(reference)
    assert "SECRETWORD" not in f"{caught.value} {caught.value!r}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[SECRETWORD", "is not YAML"),
        ("SECRETWORD", "has no clouds"),
        ("clouds: {}", "has no clouds"),
        (CLOUDS, "has several clouds"),
        ("clouds: {one: {auth: SECRETWORD}}", "no `auth`"),
        ("clouds: {one: {auth: {password: SECRETWORD}}}", "auth_url is missing"),
        ("clouds: {one: {auth: {auth_url: 'https://x'}}}", "password is missing"),
        ("clouds: {one: {auth_type: v3oidc, auth: {password: SECRETWORD}}}", "auth_type must be"),
    ],
)
def test_a_file_of_another_form_is_refused_without_being_quoted(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(CredentialMissing, match=reason) as caught:
        read_login(written(tmp_path, text))
    assert "SECRETWORD" not in str(caught.value)


def test_the_library_is_imported_when_a_driver_is_made() -> None:
    program = "import stateward.drivers.builtin_drivers, sys; print([n for n in sys.modules if n == 'openstack'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_option_can_send_a_login_to_another_address() -> None:
    assert openstack.options is not None
    assert [name for name in openstack.options if "url" in name or "endpoint" in name] == []


async def test_a_missing_login_is_a_refusal_and_nothing_goes_out(make: MakeDriver, proxy: BreakingProxy) -> None:
    driver = make(credential="env:NOBODY")
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, proxy.calls.total()) == (RefusalReason.AUTH, 0)
    assert "NOBODY_AUTH_URL is not set" in outcome.message
    assert not (await driver.observe()).complete


async def test_a_login_that_was_renewed_is_read_again(make: MakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_CLOUD_PASSWORD", "wrong")
    driver = make()
    (refused,) = await driver.create(new_machine_specs(1))
    monkeypatch.setenv("TEST_CLOUD_PASSWORD", PASSWORD)
    assert isinstance(refused, CallRefused)
    assert refused.why is RefusalReason.AUTH
    assert (await driver.observe()).complete


async def test_a_token_that_has_expired_is_renewed(driver: OpenStackDriver, proxy: BreakingProxy) -> None:
    assert (await driver.observe()).complete
    proxy.lose(BreakKind.ERROR, r"GET .*/servers/detail", status=401, body="{}")
    assert (await driver.observe()).complete
    assert proxy.count_of(r"POST .*/auth/tokens") == 2


async def test_an_application_credential_logs_in(
    make: MakeDriver, proxy: BreakingProxy, project: str, tmp_path: Path
) -> None:
    auth = f"{{auth_url: '{proxy.url}/identity/v3', application_credential_id: {project}, "
    text = f"clouds: {{one: {{auth: {auth}application_credential_secret: s1}}}}}}"
    assert (await make(credential=written(tmp_path, text)).observe()).complete


async def test_openstack_s_own_variables_are_used_without_a_reference(
    make: MakeDriver, proxy: BreakingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = {"AUTH_URL": f"{proxy.url}/identity/v3", "USERNAME": "u", "PASSWORD": "p", "PROJECT_NAME": "n"}
    for name, value in {**login, "USER_DOMAIN_ID": "default", "PROJECT_DOMAIN_ID": "default"}.items():
        monkeypatch.setenv(f"OS_{name}", value)
    assert (await make(credential="").observe()).complete


@pytest.mark.parametrize("name", ["read_timeout", "connect_timeout"])
async def test_an_option_that_is_no_number_is_a_refusal(make: MakeDriver, name: str) -> None:
    (outcome,) = await make(**{name: "soon"}).create(new_machine_specs(1))
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, name in outcome.message) == (RefusalReason.INVALID, True)


async def test_secrets_are_in_no_log_no_message_and_no_repr(
    driver: OpenStackDriver, proxy: BreakingProxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[object] = [driver, vars(driver), KeystoneLogin({"password": PASSWORD})]
    pair = await driver.ensure(CloudResource(ResourceKind.SSH_KEY, "ssh-key", "key"))
    assert isinstance(pair, CallAccepted)
    body = f'{{"badRequest": {{"code": 400, "message": "it echoes {PASSWORD}"}}}}'
    proxy.lose(BreakKind.ERROR, r"POST .*/servers", status=400, body=body)
    told += [pair, *await driver.create(new_machine_specs(1)), *await driver.create(new_machine_specs(1))]
    told += [await driver.observe(), vars(driver._calls)]
    text = caplog.text + repr(told)
    assert "it echoes (hidden)" in text
    private = pair.secret.splitlines()[1]
    assert [secret for secret in (PASSWORD, private, "adminPass") if secret in text] == []
