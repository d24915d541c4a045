"""The labels of arrows: the event, its actors where they are a restriction, and the facts that it needs."""

from collections.abc import Iterable, Iterator
from enum import IntEnum

from msgspec import Struct

from stateward.lifecycle.actors import CLOCK, USER, WORKER, Actors
from stateward.lifecycle.moves import AllowedEvent
from stateward.lifecycle.render.phrases import named_actors
from stateward.lifecycle.rows import BEGINNINGS, FAILED, SUCCEEDED, TIMED_OUT, Meaning

MAX_LINE_CHARS = 36
"""The most characters in a line of a label, where the label can be broken."""


class Tone(IntEnum):
    """The emphasis of an arrow; on a shared arrow the lowest number wins."""

    ASKED = 0  # an actor begins work
    WENT_ON = 1  # the work succeeded, or entered its next phase
    INSISTED = 2  # needs a further fact, such as force
    FAILED = 3  # the work failed, was cancelled, or timed out

    @property
    def css(self) -> str:
        """The name of the tone's class in a style sheet."""
        return self.name.lower().replace("_", "-")


class Label(Struct, frozen=True):
    """One event on an arrow."""

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
    """Return the label of an event that a state allows."""
    actors = named_actors(allowed.actors)
    plain = USER in actors or actors == (WORKER,) or (allowed.meaning is Meaning.TIMEOUT and actors == (CLOCK,))
    return Label(allowed.event, _tone(allowed), Actors() if plain else actors, allowed.needs)


def _tone(allowed: AllowedEvent) -> Tone:
    if allowed.meaning in (Meaning.FAILURE, Meaning.CANCEL, Meaning.TIMEOUT):
        return Tone.FAILED
    if allowed.needs:
        return Tone.INSISTED
    return Tone.ASKED if allowed.meaning in BEGINNINGS else Tone.WENT_ON


def label_lines(labels: Iterable[Label]) -> Iterator[LabelLine]:
    """Return the lines of an arrow's labels: one for each label, and all failures together."""
    failed = []
    for label in labels:
        if label.tone is Tone.FAILED:
            failed.append(str(label))
        else:
            yield LabelLine(str(label), label.tone)
    yield from (LabelLine(line, Tone.FAILED) for line in wrapped_lines(failed))


def return_label_lines(labels: tuple[Label, ...]) -> Iterator[LabelLine]:
    """Return the lines of the labels that lead back along an arrow."""
    if {SUCCEEDED, FAILED, TIMED_OUT} <= {label.event for label in labels}:
        yield LabelLine("back in any case", Tone.WENT_ON)
        return
    for tone in dict.fromkeys(label.tone for label in labels):
        lines = wrapped_lines([str(label) for label in labels if label.tone is tone], "back if ")
        yield from (LabelLine(line, tone) for line in lines)


def wrapped_lines(parts: list[str], start: str = "", between: str = ", ") -> Iterator[str]:
    """Join parts into lines of at most `MAX_LINE_CHARS` characters."""
    line, fresh = start, True
    for part in parts:
        if not fresh and len(line) + len(part) > MAX_LINE_CHARS:
            yield f"{line}{between.rstrip()}"
            line, fresh = "", True
        line, fresh = f"{line}{part}" if fresh else f"{line}{between}{part}", False
    if not fresh:
        yield line
