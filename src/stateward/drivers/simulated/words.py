"""What each provider calls the states of a machine, and the addresses that its machines get."""

from collections.abc import Mapping

from stateward.drivers.port import MachineState

STATES = (
    MachineState.PENDING,
    MachineState.RUNNING,
    MachineState.SUSPENDING,
    MachineState.SUSPENDED,
    MachineState.RESUMING,
    MachineState.REBOOTING,
    MachineState.TERMINATING,
    MachineState.TERMINATED,
    MachineState.FAILED,
)

# In the order of STATES.
_WORDS: Mapping[str, str] = {
    "aws":       "pending      running stopping     stopped     pending   running    shutting-down terminated failed",
    "azure":     "creating     running deallocating deallocated starting  restarting deleting      deleted    failed",
    "gcp":       "PROVISIONING RUNNING SUSPENDING   SUSPENDED   STAGING   REPAIRING  STOPPING      TERMINATED FAILED",
    "alibaba":   "Pending      Running Stopping     Stopped     Starting  Running    Releasing     Released   Failed",
    "ncp":       "INIT         RUN     NSTOPPING    NSTOP       NSTARTING RSTRT      TERMTING      TERMT      FSTOP",
    "openstack": "BUILD        ACTIVE  SUSPENDING   SUSPENDED   RESUMING  REBOOT     DELETING      DELETED    ERROR",
}  # fmt: skip

NATIVE: Mapping[str, Mapping[MachineState, str]] = {
    provider: dict(zip(STATES, words.split(), strict=True)) for provider, words in _WORDS.items()
}
"""The words of the providers that have some of their own."""

PLAIN: Mapping[MachineState, str] = {state: state.value for state in STATES}
"""The words of any other provider: ours."""


def private_ip(number: int) -> str:
    """Return a machine's address in its network."""
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def public_ip(number: int) -> str:
    """Return a machine's address outside: of the range that is set aside for trials."""
    return f"198.{18 + (number >> 16 & 1)}.{number >> 8 & 255}.{number & 255}"
