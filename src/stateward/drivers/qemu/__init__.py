"""Virtual machines under QEMU on this host."""

from stateward.drivers.qemu.driver import QemuDriver

__all__ = ["QemuDriver"]
