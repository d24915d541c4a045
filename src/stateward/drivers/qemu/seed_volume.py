"""The seed of a guest with cloud-init: a small read-only volume with its user, keys, host key and name.

Cloud-init's data source NoCloud reads the files `user-data` and `meta-data` of a volume with the label `cidata`; every
cloud image knows it. The volume is an ISO 9660 file system (ECMA-119), written here: it has one folder and two files,
so a library for it would be larger than the code. Linux shows the plain upper-case names in lower case.
"""

import struct
from collections.abc import Mapping

import msgspec

from stateward.drivers.cloud_config import cloud_config
from stateward.drivers.process.machine_dir import MachineRecord

SECTOR_BYTES = 2048
LABEL = "cidata"
DEFAULT_USER = "stateward"
TABLE_SECTOR, ROOT_SECTOR, FIRST_FILE_SECTOR = 18, 20, 21
DATE = bytes(7)
IS_FOLDER = 2


def seed_volume(record: MachineRecord, private_host_key: str) -> bytes:
    """Return the volume of a machine."""
    return iso_volume({"META-DATA": _meta_data(record), "USER-DATA": _user_data(record, private_host_key)})


def _meta_data(record: MachineRecord) -> bytes:
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in record.name)
    host_name = plain.strip("-")[:63].strip("-") or "machine"
    return msgspec.json.encode({"instance-id": record.native_id, "local-hostname": host_name})


def _user_data(record: MachineRecord, private_host_key: str) -> bytes:
    user = {
        "name": record.user or DEFAULT_USER,
        "ssh_authorized_keys": record.authorized_keys,
        "shell": "/bin/sh",
        "sudo": "ALL=(ALL) NOPASSWD:ALL",
        "lock_passwd": True,
    }
    fields = {
        "users": [user],
        "ssh_keys": {"ed25519_private": private_host_key, "ed25519_public": record.host_key},
        "ssh_pwauth": False,
    }
    return cloud_config(fields).encode()


# --- ISO 9660 --------------------------------------------------------------------------------------------------------


def iso_volume(files: Mapping[str, bytes]) -> bytes:
    """Return a volume with some files in its only folder; the names are in upper case and in order."""
    contents, entries, sector = b"", [], FIRST_FILE_SECTOR
    for name, data in sorted(files.items()):
        entries.append(_folder_entry(f"{name}.;1".encode(), sector, len(data)))
        contents += _padded(data)
        sector += len(_padded(data)) // SECTOR_BYTES
    own, parent = (_folder_entry(name, ROOT_SECTOR, SECTOR_BYTES, IS_FOLDER) for name in (b"\0", b"\1"))
    root = _padded(own + parent + b"".join(entries))
    tables = b"".join(_padded(struct.pack(f"{order}BBIH2s", 1, 0, ROOT_SECTOR, 1, b"\0\0")) for order in "<>")
    end = _padded(b"\xffCD001\x01")
    return bytes(16 * SECTOR_BYTES) + _padded(_primary_descriptor(own, sector)) + end + tables + root + contents


def _primary_descriptor(root: bytes, sectors: int) -> bytes:
    table_bytes = 10
    return b"".join((
        b"\x01CD001\x01\0",
        b" " * 32,                                        # the system
        LABEL.encode().ljust(32),
        bytes(8), _both("I", sectors), bytes(32),
        _both("H", 1), _both("H", 1),                     # one volume, and its number
        _both("H", SECTOR_BYTES), _both("I", table_bytes),
        struct.pack("<II", TABLE_SECTOR, 0), struct.pack(">II", TABLE_SECTOR + 1, 0),
        root,
        b" " * (4 * 128 + 3 * 37),                        # publisher and other names
        (b"0" * 16 + b"\0") * 4,                          # dates: not given
        b"\x01",
    ))  # fmt: skip


def _folder_entry(name: bytes, sector: int, size: int, flags: int = 0) -> bytes:
    body = (
        _both("I", sector) + _both("I", size) + DATE + bytes((flags, 0, 0)) + _both("H", 1) + bytes([len(name)]) + name
    )
    body += b"\0" * (len(body) % 2)
    return bytes((len(body) + 2, 0)) + body


def _both(form: str, number: int) -> bytes:
    """Return a number in both byte orders."""
    return struct.pack(f"<{form}", number) + struct.pack(f">{form}", number)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % SECTOR_BYTES)
