"""A real Podman behind TLS, with certificates on both sides."""

import ssl
import subprocess
from pathlib import Path

import pytest

from stateward.containers import ContainerSpec, EngineClient, EngineTls, EngineUnavailable
from stateward.drivers import ProviderRegion
from stateward.drivers.container import ContainerDriver
from tests.containers import IMAGE, PodmanService
from tests.integration.containers.socket_proxy import SocketProxy

MAKE = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=engine")
NAMES = ("-addext", "subjectAltName=IP:127.0.0.1")


def make_certificate(folder: Path, name: str) -> tuple[str, str]:
    """Make a certificate that signs itself; returns the files with it and with its key."""
    key, certificate = str(folder / f"{name}.key"), str(folder / f"{name}.pem")
    subprocess.run([*MAKE, *NAMES, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


def server_context(certificate: str, key: str, clients: str) -> ssl.SSLContext:
    """Return the context of a server that accepts clients with a certificate of an authority alone."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=clients)
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_an_engine_is_reached_over_tls_with_the_right_certificates_alone(
    podman: PodmanService, tmp_path: Path
) -> None:
    certificate, key = make_certificate(tmp_path, "engine")
    ours, our_key = make_certificate(tmp_path, "ours")
    other, other_key = make_certificate(tmp_path, "other")
    async with SocketProxy(podman.socket).with_tls(server_context(certificate, key, clients=ours)) as address:
        client = EngineClient(address, EngineTls(certificate, ours, our_key))
        container = await client.create_container(ContainerSpec("over-tls", "key", IMAGE, ("sleep", "1000")))
        await client.start_container(container)
        assert (await client.exec(container, ["echo", "hello"])).stdout == b"hello\n"
        await client.remove_container(container, force=True)
        await client.close()
        for wrong in (
            EngineTls(other, ours, our_key),
            EngineTls(certificate, other, other_key),
            EngineTls(certificate),
        ):
            visitor = EngineClient(address, wrong)
            with pytest.raises(EngineUnavailable):
                await visitor.list_containers()
            await visitor.close()
        await check_credential(address, tmp_path, certificate, ours, our_key)


async def check_credential(address: str, folder: Path, certificate: str, ours: str, our_key: str) -> None:
    """See that the driver finds the files by its credential."""
    credential = folder / "engine.ini"
    credential.write_text(f"[default]\nca_file = {certificate}\ncert_file = {ours}\nkey_file = {our_key}\n")
    region = ProviderRegion("lab", "tls", credential=f"file:{credential}", options={"engine": address})
    driver = ContainerDriver(region)
    listing = await driver.observe()
    assert listing.complete, listing.problem
    await driver.close()
