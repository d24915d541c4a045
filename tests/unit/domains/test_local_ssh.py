"""The command line of the local ssh program: names from the server are never options."""

from pathlib import Path

from stateward.domains.mci.cli.local_ssh import ssh_command
from stateward.domains.mci.cli.tumblebug_calls import VmAccessView

EVIL = "-oProxyCommand=touch /tmp/no"


def test_a_name_or_an_address_is_never_an_option() -> None:
    vm = VmAccessView(vm_id="web-1", public_ip="-V", ssh_port=22, vm_user_name=EVIL)
    bastion = VmAccessView(vm_id="gate", public_ip="192.0.2.1", ssh_port=22, vm_user_name=EVIL)
    command = ssh_command("default.shop", vm, bastion, None, None, Path("known_hosts"))
    assert command[-4:] == ["-l", EVIL, "--", "-V"]
    assert any(one.endswith(f"-l '{EVIL}' -- 192.0.2.1") for one in command)
