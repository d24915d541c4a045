"""The faults of a simulated region: its profile, and the injector that decides the fate of each call.

The profile says how long things take, and how often each fault occurs. All times are in seconds. All chances are
between 0 and 1, and drawn per call unless the comment says otherwise.
"""

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum, auto
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import fields, replace

from stateward.aio.token_bucket import TokenBucket
from stateward.drivers.port import MachineState
from stateward.errors import BadInput, UnknownName
from stateward.validation_texts import explain

Span: TypeAlias = float | tuple[float, float]
"""A time, or a range to draw one from."""

MAX_TIME_S = 31_536_000.0
"""The longest time that an option may set: a year."""

SPAN_MEANS = f"a number of seconds from 0 to {MAX_TIME_S:.0f}, or two of them, such as 1..4"

Time: TypeAlias = Annotated[float, Meta(ge=0.0, le=MAX_TIME_S)]

Chance: TypeAlias = Annotated[float, Meta(ge=0.0, le=1.0)]
Portion: TypeAlias = Annotated[int, Meta(ge=1)]
Budget: TypeAlias = Annotated[float, Meta(ge=0.001, le=1e9)]
Burst: TypeAlias = Annotated[float, Meta(ge=1.0, le=1e9)]


class FaultProfile(Struct, frozen=True, kw_only=True):
    """The settings of a region; by default transitions take a few seconds and nothing fails."""

    latency: Span = (0.02, 0.1)  # of each call, both ways
    patience: Span = 2.0  # time-out of an answer that is lost

    pending: Span = (1.0, 4.0)
    suspending: Span = (0.5, 2.0)
    resuming: Span = (0.5, 2.0)
    rebooting: Span = (1.0, 3.0)
    terminating: Span = (0.5, 2.0)
    forgotten: Time = 3600.0  # how long a terminated machine is still listed

    refused: Chance = 0.0  # per machine: no capacity
    fails: Chance = 0.0  # per machine: accepted, and then it fails to start
    relapses: Chance = 0.0  # per action: accepted, and then the machine returns to its former state
    transient: Chance = 0.0
    throttled: Chance = 0.0
    request_lost: Chance = 0.0  # not done, and no answer
    answer_lost: Chance = 0.0  # done, and no answer
    duplicated: Chance = 0.0  # delivered a second time, later
    duplicate_after: Span = (0.0, 10.0)
    cut_short: Chance = 0.0  # per listing: a page is missing
    hint_lost: Chance = 0.0  # per event

    late: Span = 0.0  # age of the data in a listing; newer changes are not in it
    dead: bool = False  # no call gets through

    calls_a_second: Budget | None = None  # the request budget of the region; further calls are throttled
    burst: Burst = 10.0  # calls that may come at once

    knows_tokens: bool = True  # whether a repeated action is recognised by its token; most providers do not
    bulk: Portion = 100
    page: Portion = 1000


CALM = FaultProfile(latency=0.0, pending=0.0, suspending=0.0, resuming=0.0, rebooting=0.0, terminating=0.0)
"""Transitions take no time and nothing fails."""

STORMY = FaultProfile(
    refused=0.02,
    fails=0.03,
    relapses=0.03,
    transient=0.05,
    throttled=0.05,
    request_lost=0.03,
    answer_lost=0.05,
    duplicated=0.05,
    cut_short=0.1,
    hint_lost=0.2,
    late=(0.0, 5.0),
)
"""Every fault occurs now and then."""


class CallFate(Enum):
    """The fate of a call."""

    DONE = auto()
    DUPLICATED = auto()
    ANSWER_LOST = auto()
    REQUEST_LOST = auto()
    TRANSIENT = auto()
    THROTTLED = auto()


def with_options(profile: FaultProfile, options: Mapping[str, str]) -> FaultProfile:
    """Return a profile with the settings of the options; a span is written `1..4`."""
    known = {field.name: field.type for field in fields(FaultProfile)}
    for name in options:
        if name not in known:
            raise UnknownName("option of the simulated driver", name, known)
    return replace(profile, **{name: _setting(name, text, known[name]) for name, text in options.items()})


def _setting(name: str, text: str, sort: object) -> object:
    value = text.split("..", 1) if ".." in text else text
    try:
        setting = msgspec.convert(value, sort, strict=False)
        if sort == Span:  # msgspec cannot check the limits inside a union
            msgspec.convert(setting if isinstance(setting, tuple) else (setting,), tuple[Time, ...])
        return setting
    except msgspec.ValidationError as error:
        allowed = SPAN_MEANS if sort == Span else explain(error, sort).allowed
        raise BadInput(name, text, allowed) from error


def transition_time(profile: FaultProfile, state: MachineState) -> Span:
    """Return how long a transitional state takes."""
    times = {
        MachineState.SUSPENDING: profile.suspending,
        MachineState.RESUMING: profile.resuming,
        MachineState.REBOOTING: profile.rebooting,
        MachineState.TERMINATING: profile.terminating,
    }
    return times.get(state, profile.pending)


def draw_seconds(span: Span, chance: Random) -> float:
    """Return a time from a span."""
    return chance.uniform(*span) if isinstance(span, tuple) else span


def draw_fate(profile: FaultProfile, chance: Random) -> CallFate:
    """Draw the fate of a call: at most one fault."""
    if profile.dead:
        return CallFate.REQUEST_LOST if chance.random() < 0.5 else CallFate.TRANSIENT
    left = chance.random()
    for fate, share in (
        (CallFate.THROTTLED, profile.throttled),
        (CallFate.TRANSIENT, profile.transient),
        (CallFate.REQUEST_LOST, profile.request_lost),
        (CallFate.ANSWER_LOST, profile.answer_lost),
        (CallFate.DUPLICATED, profile.duplicated),
    ):
        if left < share:
            return fate
        left -= share
    return CallFate.DONE


DEFAULT_RETRY_AFTER_S = 1.0
"""The retry-after of a call that was throttled at random."""


class FaultInjector:
    """Decides the fate of the calls to one region."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._scripted: deque[CallFate] = deque()
        self._duplicates: list[tuple[float, int, Callable[[float], object]]] = []
        self._order = count()
        self._bucket: TokenBucket | None = None

    def script_next(self, *fates: CallFate) -> None:
        """Set the fates of the next calls; later calls are random again."""
        self._scripted.extend(fates)

    def next_fate(self, profile: FaultProfile, now: float) -> tuple[CallFate, float]:
        """Return the fate of a call that arrives now, and the retry-after if it is throttled."""
        if self._scripted:
            return self._scripted.popleft(), DEFAULT_RETRY_AFTER_S
        short = self._take_from_budget(profile, now)
        return (CallFate.THROTTLED, short) if short else (draw_fate(profile, self._chance), DEFAULT_RETRY_AFTER_S)

    def _take_from_budget(self, profile: FaultProfile, now: float) -> float:
        """Take the call from the region's budget; return how long to wait if there is none left."""
        if profile.calls_a_second is None or profile.dead:
            return 0.0
        if self._bucket is None:
            self._bucket = TokenBucket(profile.calls_a_second, profile.burst, now)
        self._bucket.rate, self._bucket.burst = profile.calls_a_second, profile.burst
        return self._bucket.take(now)

    def schedule_duplicate(self, profile: FaultProfile, now: float, deliver: Callable[[float], object]) -> None:
        """Deliver a call once more, later."""
        when = now + draw_seconds(profile.duplicate_after, self._chance)
        heappush(self._duplicates, (when, next(self._order), deliver))

    def deliver_due(self, now: float) -> None:
        """Deliver the duplicates that are due, each at its own time."""
        while self._duplicates and self._duplicates[0][0] <= now:
            when, _, deliver = heappop(self._duplicates)
            deliver(when)
