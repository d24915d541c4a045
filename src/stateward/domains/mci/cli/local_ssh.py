"""The local `ssh` program with the address of a VM and its pinned host key.

The known host keys are a file of this login alone. A VM has a name of its own there, because addresses are used again.
Without a known host key, ssh shows the fingerprint and asks.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from shlex import join
from tempfile import TemporaryDirectory

from stateward.domains.mci.cli.tumblebug_calls import VmAccessView
from stateward.errors import BadInput


def run_ssh(
    place: str,
    access: VmAccessView,
    bastion: VmAccessView | None,
    user: str | None,
    identity: Path | None,
    arguments: Sequence[str],
) -> int:
    """Run ssh until it ends; returns its exit status."""
    with TemporaryDirectory(prefix="stateward-ssh-") as folder:
        known_hosts = Path(folder, "known_hosts")
        known = [target for target in (access, bastion) if target is not None and target.host_key]
        known_hosts.write_text("".join(f"{place}.{target.vm_id} {target.host_key}\n" for target in known))
        command = ssh_command(place, access, bastion, user, identity, known_hosts)
        try:
            return subprocess.call([*command, *arguments])  # noqa: S603 - the program of this machine
        except OSError as error:
            raise BadInput("ssh", command[0], f"a program that can be started ({error.strerror})") from error


def ssh_command(
    place: str,
    access: VmAccessView,
    bastion: VmAccessView | None,
    user: str | None,
    identity: Path | None,
    known_hosts: Path,
) -> list[str]:
    """Return the command that logs in to a VM, through a bastion if it has one."""
    if not access.ssh_port:
        raise BadInput("MCI/VM", access.vm_id, "a VM with an SSH server; the driver of this one offers no SSH")
    if not (access.public_ip or access.private_ip):
        raise BadInput("MCI/VM", access.vm_id, "a VM with an address; this one shows none now")
    options = _options(place, access, identity, known_hosts)
    if bastion is not None:
        through = ["ssh", *_options(place, bastion, identity, known_hosts), "-W", "%h:%p"]
        options += ["-o", f"ProxyCommand={join([*through, *_login(bastion, None)])}"]
    return ["ssh", *options, *_login(access, user)]


def _options(place: str, access: VmAccessView, identity: Path | None, known_hosts: Path) -> list[str]:
    checking = "yes" if access.host_key else "ask"
    own_key = [] if identity is None else ["-i", str(identity), "-o", "IdentitiesOnly=yes"]
    return [
        *(
            "-p",
            str(access.ssh_port),
            "-o",
            f"UserKnownHostsFile={known_hosts}",
            "-o",
            "GlobalKnownHostsFile=/dev/null",
        ),
        *("-o", f"HostKeyAlias={place}.{access.vm_id}", "-o", f"StrictHostKeyChecking={checking}"),
        *own_key,
    ]


def _login(access: VmAccessView, user: str | None) -> list[str]:
    """Return the user and the host as arguments, neither of which ssh can take for an option."""
    name, host = user or access.vm_user_name, access.public_ip or access.private_ip
    return [*(["-l", name] if name else []), "--", host]
