"""Login to QEMU machines: a real Linux guest with its seed, its forwarded port and its host key."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import asyncssh
import pytest
import pytest_asyncio
import yaml
from msgspec.structs import replace

from stateward.drivers import (
    CallRefused,
    Driver,
    MachineAction,
    MachineHandle,
    MachineSpec,
    MachineState,
    Observation,
    ProviderRegion,
)
from stateward.drivers.process.machine_dir import MachineRecord
from stateward.drivers.qemu import QemuDriver
from stateward.drivers.qemu.guest import GUESTS
from stateward.drivers.qemu.guest_images import GuestImage
from stateward.drivers.qemu.hardware import BOARDS
from stateward.drivers.qemu.seed_volume import SECTOR_BYTES, seed_volume
from tests.contract.drivers.driver_case import DriverCase
from tests.contract.drivers.login_contract import LoginContract
from tests.integration.drivers.local.host_machines import kill_all_in, needs_qemu, wait_for_state
from tests.integration.drivers.local.linux_guest import built_guest
from tests.integration.drivers.local.ssh_logins import KEY, OTHER_KEY, log_in, public_text
from tests.waiting import until

HANDLE = MachineHandle("key-1")
MACHINE = MachineSpec("key-1", "web, 1", "medium", "linux", user="ada", authorized_keys=(public_text(KEY),))

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]


def make_driver(folder: Path, **options: str) -> QemuDriver:
    return QemuDriver(ProviderRegion("local", "here", options={"folder": str(folder), **options}))


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guest; it is built once."""
    return built_guest(tmp_path_factory.mktemp("guest") / "build")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def driver(image: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[QemuDriver]:
    folder = tmp_path_factory.mktemp("qemu-ssh") / "region"
    driver = make_driver(folder, images=f"linux={image}")
    yield driver
    await driver.close()
    kill_all_in(folder)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seen(driver: QemuDriver) -> Observation:
    """The one guest of these tests; it takes long to boot."""
    await driver.create([MACHINE])
    found = await wait_for_state(driver, "key-1", MachineState.RUNNING)
    await wait_for_console(driver, "key-1", "guest is ready")
    return found


async def wait_for_console(driver: QemuDriver, key: str, text: str) -> None:
    """Wait until a guest has written a text; its port accepts connections long before."""
    console = driver.folder_of(key) / "console"
    await until(lambda: console.exists() and text in console.read_text(errors="replace"))


@needs_qemu
async def test_its_user_logs_in_with_the_machines_keys_alone(seen: Observation) -> None:
    async with log_in(seen, user="ada") as connection:  # it accepts the listed host key alone
        result = await connection.run("hostname; echo $USER")
        async with connection.start_sftp_client() as sftp:
            await sftp.mkdir("data")
            assert "data" in await sftp.listdir(".")
    assert result.stdout == "web--1\nada\n"
    with pytest.raises(asyncssh.PermissionDenied):
        async with log_in(seen, OTHER_KEY, "ada"):
            pass


@needs_qemu
async def test_nothing_leads_out_of_the_guest(seen: Observation) -> None:
    async with log_in(seen, user="ada") as connection:
        result = await connection.run("ip route; ip addr show eth0")
    assert "default" not in str(result.stdout)
    assert "10.0.2." in str(result.stdout)


@needs_qemu
async def test_a_suspended_guest_answers_later(driver: QemuDriver, seen: Observation) -> None:
    async with log_in(seen, user="ada") as connection:
        await driver.act(MachineAction.SUSPEND, [HANDLE])
        command = asyncio.create_task(connection.run("echo later"))
        _, waiting = await asyncio.wait([command], timeout=0.5)
        assert waiting
        await driver.act(MachineAction.RESUME, [HANDLE])
        assert (await command).stdout == "later\n"


@needs_qemu
async def test_a_terminated_guest_closes_its_port(driver: QemuDriver, seen: Observation) -> None:
    await driver.act(MachineAction.TERMINATE, [HANDLE])

    async def is_closed() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", seen.ssh_port)
        except OSError:
            return True
        writer.close()
        return False

    await until(is_closed)


class LinuxCase(DriverCase):
    """Machines of the Linux guest."""

    spec, image = "medium", "linux"

    def __init__(self, folder: Path, image: Path) -> None:
        super().__init__()
        self.folder, self._path = folder, image

    def make(self) -> Driver:
        region = ProviderRegion("local", "here", options={"folder": str(self.folder), "images": f"linux={self._path}"})
        return QemuDriver(region, self.count)

    def login_spec(self, keys: Sequence[str]) -> MachineSpec:
        return replace(self.machine_spec(), user="ada", authorized_keys=tuple(keys))

    async def close(self) -> None:
        await super().close()
        kill_all_in(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)


@needs_qemu
@pytest.mark.long
class TestLinuxGuest(LoginContract):
    """The contract of logins."""

    @pytest_asyncio.fixture(loop_scope="module")
    async def case(self, tmp_path: Path, image: Path) -> AsyncIterator[LinuxCase]:
        case = LinuxCase(tmp_path / "region", image)
        yield case
        await case.close()


# --- without a guest -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which(BOARDS["x86_64"].program) is None, reason="there is no QEMU for x86")
async def test_a_disk_boots_and_stays_as_it_is(tmp_path: Path) -> None:
    disk = tmp_path / "disk.img"
    disk.write_bytes(GUESTS["x86_64"].ljust(1 << 20, b"\0"))
    before = disk.read_bytes()
    driver = make_driver(tmp_path / "region", arch="x86_64", images=f"linux={disk}")
    try:
        await driver.create([MACHINE])
        found = await wait_for_state(driver, "key-1", MachineState.RUNNING)
        await wait_for_console(driver, "key-1", "tick 00001")
        assert found.ssh_port
        assert found.private_ip == "127.0.0.1"
        assert disk.read_bytes() == before
    finally:
        await driver.close()
        kill_all_in(tmp_path / "region")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"images": "linux=/no/such/path"}, "the image linux is not there"),
        ({"images": "linux=/usr"}, "the image linux has no vmlinuz"),
        ({}, "there is no image 'linux' here, only tick"),
    ],
)
async def test_an_image_that_cannot_be_booted_is_refused(tmp_path: Path, options: dict[str, str], words: str) -> None:
    driver = make_driver(tmp_path / "region", **options)
    (outcome,) = await driver.create([MACHINE])
    assert isinstance(outcome, CallRefused)
    assert outcome.message.startswith(words) or "is not installed" in outcome.message
    await driver.close()


async def test_a_disk_needs_the_firmware_of_its_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk.qcow2").touch()
    image = GuestImage("linux", tmp_path / "disk.qcow2")
    monkeypatch.setattr(Path, "is_file", lambda path: path == image.path)
    assert "qemu-efi-aarch64" in image.problem("aarch64")


def files_of(volume: bytes) -> dict[str, bytes]:
    """Read the files of a volume as ECMA-119 describes it."""
    assert volume[16 * SECTOR_BYTES : 16 * SECTOR_BYTES + 7] == b"\x01CD001\x01"
    descriptor = volume[16 * SECTOR_BYTES : 17 * SECTOR_BYTES]
    assert descriptor[40:72].decode().rstrip() == "cidata"
    assert int.from_bytes(descriptor[80:84], "little") == len(volume) // SECTOR_BYTES
    start = int.from_bytes(descriptor[156 + 2 : 156 + 6], "little") * SECTOR_BYTES
    found, at = {}, start
    while length := volume[at]:
        entry = volume[at : at + length]
        place, size = (int.from_bytes(entry[begin : begin + 4], "little") for begin in (2, 10))
        name = entry[33 : 33 + entry[32]]
        found[name.decode()] = volume[place * SECTOR_BYTES : place * SECTOR_BYTES + size]
        at += length
    return found


async def test_the_seed_is_what_cloud_init_reads() -> None:
    record = MachineRecord(
        "key",
        "id-1",
        "Web \u00e9",
        "tiny",
        "linux",
        user="ada",
        host_key="ssh-ed25519 AAAA",
        authorized_keys=("ssh-rsa B",),
    )
    files = files_of(seed_volume(record, "-----BEGIN\nsecret\n"))
    assert set(files) == {"\0", "\1", "META-DATA.;1", "USER-DATA.;1"}
    assert yaml.safe_load(files["META-DATA.;1"]) == {"instance-id": "id-1", "local-hostname": "Web"}
    text = files["USER-DATA.;1"].decode()
    assert text.startswith("#cloud-config\n")
    config = yaml.safe_load(text)
    (user,) = config["users"]
    assert (user["name"], user["ssh_authorized_keys"]) == ("ada", ["ssh-rsa B"])
    assert config["ssh_keys"] == {"ed25519_private": "-----BEGIN\nsecret\n", "ed25519_public": "ssh-ed25519 AAAA"}
    assert config["ssh_pwauth"] is False
