"""Names, labels and images of containers of systems."""

import os
from pathlib import Path

import pytest

from stateward.credential_fields import MAX_FILE_BYTES, CredentialMissing
from stateward.domains.systems.backends.container.container_specs import ContainerNames, EngineReach
from stateward.domains.systems.backends.container.image_pins import read_login
from stateward.domains.systems.backends.local.instance_dir import InstanceOrder
from stateward.domains.systems.backends.port import ServiceRef, SystemRef
from stateward.domains.systems.definition import HealthCheck, PinnedImage, Service, revision_of
from stateward.domains.systems.settings import SystemsSettings

REF = ServiceRef(SystemRef("ns", "shop"), "/store/api")


def test_names_of_two_installations_namespaces_services_and_starts_differ() -> None:
    other_ns, other_path = ServiceRef(SystemRef("other", "shop"), REF.path), ServiceRef(REF.system, "/store.api")
    made = {
        ContainerNames(one).container(ref, name, boot)
        for one in ("a", "b")
        for ref in (REF, other_ns, other_path)
        for name in ("r-0", "r-1")
        for boot in (1, 2)
    }
    assert len(made) == 24
    assert max(map(len, made)) < 64  # also host names


def test_a_container_is_created_from_the_pinned_image_with_no_more_than_it_needs() -> None:
    service = Service(image="shop:1", pinned=PinnedImage("sha256:12"), env={"PORT": "1"}, volumes={"data": "/data"})
    spec = ContainerNames("a").container_spec(REF, InstanceOrder("r-0", "r", service), 1, EngineReach())
    assert (spec.image, spec.env["PORT"], spec.aliases) == ("sha256:12", "8080", ("store.api",))
    assert (spec.ports, spec.capabilities, spec.command) == ((), (), None)
    assert spec.mounts[0].volume == ContainerNames("a").volume(REF.system, "data")


def test_an_address_changes_the_revision_of_an_image_only_if_there_was_none() -> None:
    bare, first, second = (Service(image="a", address=port) for port in (None, 1, 2))
    assert revision_of(bare) != revision_of(first) == revision_of(second)
    assert revision_of(Service(command=("a",))) == revision_of(Service(command=("a",), address=1))


def test_a_port_is_published_where_somebody_connects_to_it() -> None:
    names = ContainerNames("a")
    for service, many in (
        (Service(image="a"), 0),
        (Service(image="a", health=HealthCheck(command=("true",))), 0),
        (Service(image="a", health=HealthCheck(tcp=True)), 1),
        (Service(image="a", address=0), 1),
    ):
        spec = names.container_spec(REF, InstanceOrder("r-0", "r", service), 1, EngineReach())
        assert len(spec.ports) == many


def test_a_credential_is_for_its_own_registry_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SERVER", "registry.example:5000"), ("USERNAME", "ann"), ("PASSWORD", "secret")):
        monkeypatch.setenv(f"SHOP_{name}", value)
    assert read_login("env:SHOP", "registry.example:5000/web:1").username == "ann"
    for image in ("web:1", "evil.example/web:1", "registry.example/web:1"):
        with pytest.raises(CredentialMissing, match="another registry") as refused:
            read_login("env:SHOP", image)
        assert "secret" not in str(refused.value)


def test_what_is_no_small_file_is_no_credential(tmp_path: Path) -> None:
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    os.mkfifo(pipe)
    large.write_text("[default]\n" + "# " * MAX_FILE_BYTES)
    for path in (pipe, large, tmp_path, Path("/dev/zero")):
        with pytest.raises(CredentialMissing, match="cannot be read"):
            read_login(f"file:{path}", "web:1")


def test_a_credential_is_for_the_namespaces_that_it_is_granted_to() -> None:
    granted = SystemsSettings(registry_logins="shop=env:SHOP, *=file:/etc/logins, shop=file:/etc/more#night")
    for reference, ns, may in (
        ("env:SHOP", "shop", True),
        ("env:SHOP", "other", False),
        ("env:SHOPS", "shop", False),
        ("file:/etc/logins#any", "other", True),
        ("file:/etc/logins/../shadow", "other", False),
        ("file:/etc/more#night", "shop", True),
        ("file:/etc/more", "shop", False),
    ):
        assert granted.may_log_in(reference, ns) == may, reference
    assert not SystemsSettings().may_log_in("env:SHOP", "shop")
