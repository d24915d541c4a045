"""What an arrow says: the event, who brings it about where that is not plain, and what it needs."""

from collections.abc import Iterable, Iterator
from enum import IntEnum

from msgspec import Struct

from stateward.lifecycle.actors import CLOCK, USER, WORKER, Actors
from stateward.lifecycle.moves import AllowedEvent
from stateward.lifecycle.render.phrases import named_actors
from stateward.lifecycle.rows import BEGINNINGS, FAILED, SUCCEEDED, TIMED_OUT, Meaning

MAX_LINE_CHARS = 36
"""How many letters a line of a label has at most, where it can be broken."""


class Tone(IntEnum):
    """How loud an arrow is drawn; on a shared arrow the lowest number wins."""

    ASKED = 0  # somebody begins something
    WENT_ON = 1  # it went as it should
    INSISTED = 2  # possible only if something more holds, such as force
    FAILED = 3  # it went wrong, or nobody answered

    @property
    def css(self) -> str:
        """The tone as the name of a class in a style sheet."""
        return self.name.lower().replace("_", "-")


class Label(Struct, frozen=True):
    """One thing that may happen on an arrow."""

    event: str
    tone: Tone
    actors: Actors = Actors()
    needs: tuple[str, ...] = ()

    def __str__(self) -> str:
        who = f" ({'/'.join(self.actors)})" if self.actors else ""
        return f"{self.event}{who}{' [' + ', '.join(self.needs) + ']' if self.needs else ''}"


class LabelLine(Struct, frozen=True):
    """One line of text beside an arrow."""

    text: str
    tone: Tone


def label_of(allowed: AllowedEvent) -> Label:
    """Say what may happen in a state as an arrow's label."""
    return Label(allowed.event, _tone(allowed), _shown_actors(allowed), allowed.needs)


def _tone(allowed: AllowedEvent) -> Tone:
    if allowed.meaning in (Meaning.FAILURE, Meaning.CANCEL, Meaning.TIMEOUT):
        return Tone.FAILED
    if allowed.needs:
        return Tone.INSISTED
    return Tone.ASKED if allowed.meaning in BEGINNINGS else Tone.WENT_ON


def _shown_actors(allowed: AllowedEvent) -> Actors:
    """Name the actors only where they are a restriction: not the user's own doing, the worker's work, the time-out."""
    actors = named_actors(allowed.actors)
    plain = USER in actors or actors == (WORKER,) or (allowed.meaning is Meaning.TIMEOUT and actors == (CLOCK,))
    return Actors() if plain else actors


def label_lines(labels: Iterable[Label]) -> Iterator[LabelLine]:
    """Say what leads along an arrow: one line each, and what goes wrong together."""
    failed = []
    for label in labels:
        if label.tone is Tone.FAILED:
            failed.append(str(label))
        else:
            yield LabelLine(str(label), label.tone)
    yield from (LabelLine(line, Tone.FAILED) for line in wrapped_lines(failed))


def return_label_lines(labels: tuple[Label, ...]) -> Iterator[LabelLine]:
    """Say what leads back along an arrow."""
    if {SUCCEEDED, FAILED, TIMED_OUT} <= {label.event for label in labels}:
        yield LabelLine("back in any case", Tone.WENT_ON)
        return
    for tone in dict.fromkeys(label.tone for label in labels):
        lines = wrapped_lines([str(label) for label in labels if label.tone is tone], "back if ")
        yield from (LabelLine(line, tone) for line in lines)


def wrapped_lines(parts: list[str], start: str = "", between: str = ", ") -> Iterator[str]:
    """Set parts one after the other in lines of bearable length."""
    line, fresh = start, True
    for part in parts:
        if not fresh and len(line) + len(part) > MAX_LINE_CHARS:
            yield f"{line}{between.rstrip()}"
            line, fresh = "", True
        line, fresh = f"{line}{part}" if fresh else f"{line}{between}{part}", False
    if not fresh:
        yield line
