"""The faults of the test clouds: which of the next calls fails, and how."""

from abc import ABC, abstractmethod
from collections import Counter
from enum import StrEnum
from threading import RLock

from msgspec import Struct


class FaultKind(StrEnum):
    """The kinds of faults of a call."""

    ERROR = "answered with an error, nothing is done"
    DONE_BUT_ERROR = "done, and answered with an error"
    LOST_ANSWER = "done, and the connection is cut"
    LOST_REQUEST = "not done, and the connection is cut"
    SILENCE = "not done, and never answered"

    @property
    def is_done(self) -> bool:
        """Whether the call is carried out all the same."""
        return self in (FaultKind.LOST_ANSWER, FaultKind.DONE_BUT_ERROR)

    @property
    def is_answered(self) -> bool:
        """Whether the caller gets an error."""
        return self in (FaultKind.ERROR, FaultKind.DONE_BUT_ERROR)


class Fault(Struct):
    """A fault of one of the next calls."""

    kind: FaultKind
    action: str = ""  # such as `RunInstances` or `PUT virtualMachines`; any, if empty
    code: str = ""
    status: int = 400
    message: str = "injected"
    times: int = 1
    skip: int = 0  # how many calls pass before
    headers: tuple[tuple[str, str], ...] = ()


class FaultyCloud(ABC):
    """A test cloud whose calls are counted, and fail if a test wants it."""

    def __init__(self) -> None:
        self._lock = RLock()

    @abstractmethod
    def reset(self) -> None:
        """Remove everything."""

    def reset_faults(self) -> None:
        """Forget the faults and the calls."""
        self.faults: list[Fault] = []
        self.calls: Counter[str] = Counter()
        self.cut = False

    def inject_fault(self, fault: Fault) -> None:
        """Let one of the next calls fail."""
        with self._lock:
            self.faults.append(fault)

    def count_call(self, action: str) -> Fault | None:
        """Count a call; return how it fails, or None."""
        self.calls[action] += 1
        if self.cut:
            return Fault(FaultKind.LOST_REQUEST)
        for fault in self.faults:
            if fault.action not in ("", action) or fault.times <= 0:
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            fault.times -= 1
            return fault
        return None
