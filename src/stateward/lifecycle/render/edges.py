"""The arrows of a drawing: the moves of a lifecycle, merged into few enough to read.

A table compiles to hundreds of moves, one per source, event and actor. A drawing has one arrow per pair of states; its
labels are the events. Two kinds of moves are merged further, because they make drawings unreadable. An event that leads
to one state from many others is one arrow out of a bundle. The way back to the state where an action began is part of
the arrow that left it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from msgspec import Struct

from stateward.lifecycle.moves import AllowedEvent
from stateward.lifecycle.render.arrow_labels import Label, Tone, label_of
from stateward.lifecycle.rows import SUCCEEDED, TIMED_OUT, Meaning
from stateward.lifecycle.states import State, States
from stateward.lifecycle.table import Lifecycle

BEGUN = frozenset({Meaning.ACTION, Meaning.REQUEST})
ENDED = frozenset({Meaning.SUCCESS, Meaning.FAILURE, Meaning.CANCEL, Meaning.TIMEOUT})

WORTH_ASKED, WORTH = 4, 3
"""How many arrows a bundle must save: more for actions of users, because readers look for those."""


class Edge(Struct, frozen=True):
    """An arrow from a state, or from a bundle of states, to a state; `back` are the labels that lead back along it."""

    sources: States
    target: State
    labels: tuple[Label, ...]
    back: tuple[Label, ...] = ()

    @property
    def tone(self) -> Tone:
        """The tone of the arrow: that of its most important label."""
        return min(label.tone for label in self.labels)

    @property
    def bundled(self) -> bool:
        """Whether the arrow begins at several states."""
        return len(self.sources) > 1


class StateEdge(Struct, frozen=True):
    """An event that leads from some states to another; `returns`: it leads back to where the work began."""

    label: Label
    sources: States
    target: State
    meaning: Meaning
    returns: bool = False

    @property
    def way(self) -> tuple[States, State]:
        """The states before and after."""
        return self.sources, self.target

    @property
    def likeness(self) -> tuple[object, ...]:
        """The key that all edges of a bundle share. Successes are never bundled: they are the main way through."""
        alone = self.sources if self.label.event == SUCCEEDED else ()
        return self.label.event, self.label.actors, self.label.needs, self.target, alone


Way: TypeAlias = tuple[States, State]
Family: TypeAlias = list[list[StateEdge]]


def edges(lifecycle: Lifecycle) -> tuple[Edge, ...]:
    """Return the arrows of a lifecycle's drawing: first those that begin work, then the others."""
    happened = tuple(dict.fromkeys(_happenings(lifecycle)))
    begun = _bundled(edge for edge in happened if edge.meaning in BEGUN)
    others = [edge for edge in happened if edge.meaning not in BEGUN]
    back = _ways_back(begun, others)
    folded = {edge for several in back.values() for edge in several}
    rest = _bundled(edge for edge in others if edge not in folded)
    return tuple(_merged((*begun, *rest), back))


def _happenings(lifecycle: Lifecycle) -> Iterator[StateEdge]:
    for source in lifecycle.states:
        for allowed in lifecycle.allowed[source]:
            if _is_drawn(allowed):
                returns = allowed.origins == (allowed.target,)
                yield StateEdge(label_of(allowed), States((source,)), allowed.target, allowed.meaning, returns)


def _is_drawn(allowed: AllowedEvent) -> bool:
    """Return whether an event is drawn. Hidden work is not, nor the cancellation of an action back to its origin."""
    if allowed.meaning is Meaning.CANCEL:
        return not allowed.origins
    return allowed.meaning is not Meaning.HIDDEN


def _bundled(happenings: Iterable[StateEdge]) -> list[StateEdge]:
    """Merge equal events of many states into bundles where that saves arrows; the largest bundles first."""
    drawn: dict[Way, set[object]] = defaultdict(set)
    alike: dict[object, list[StateEdge]] = defaultdict(list)
    for edge in happenings:
        drawn[edge.way].add(edge.likeness)
        alike[edge.likeness].append(edge)
    bundled: list[StateEdge] = []
    families: dict[Way, Family] = defaultdict(list)
    for several in alike.values():
        families[_sources(several), several[0].target].append(several)
    for family in sorted(families.values(), key=lambda family: -len(family[0])):
        bundled.extend(_bundle(family, drawn))
    return bundled


def _bundle(family: Family, drawn: dict[Way, set[object]]) -> Iterable[StateEdge]:
    """Bundle a family if that saves enough arrows; an arrow with other events is not saved."""
    likenesses = {several[0].likeness for several in family}
    saved = sum(drawn[edge.way] <= likenesses for edge in family[0])
    asked = all(several[0].label.tone is Tone.ASKED for several in family)
    if saved < (WORTH_ASKED if asked else WORTH):
        return [edge for several in family for edge in several]
    for edge in family[0]:
        drawn[edge.way] -= likenesses
    return map(_joined, family)


def _joined(several: list[StateEdge]) -> StateEdge:
    loudest = min(several, key=lambda edge: edge.label.tone)
    return StateEdge(loudest.label, _sources(several), loudest.target, loudest.meaning)


def _sources(several: Iterable[StateEdge]) -> States:
    return States(dict.fromkeys(state for edge in several for state in edge.sources))


def _ways_back(begun: list[StateEdge], others: list[StateEdge]) -> dict[Way, tuple[StateEdge, ...]]:
    """Return the endings that lead back along the arrow on which the work began."""
    between: dict[Way, list[StateEdge]] = defaultdict(list)
    origins: dict[State, States] = defaultdict(States)
    for edge in (*begun, *others):
        between[edge.way].append(edge)
    for edge in begun:
        origins[edge.target] |= edge.sources
    back: dict[Way, tuple[StateEdge, ...]] = {}
    for sources, target in dict.fromkeys(edge.way for edge in begun):
        endings = [between.get((States((target,)), source), []) for source in sources if source != target]
        back[sources, target] = _own(endings, origins[target]) if len(sources) == 1 else _common(endings)
    return back


def _own(endings: list[list[StateEdge]], origins: States) -> tuple[StateEdge, ...]:
    """Return the endings that lead back to the origin, if nothing else leads there."""
    back = [edge for several in endings for edge in several]
    returns = all(edge.meaning in ENDED and (edge.returns or origins == (edge.target,)) for edge in back)
    return tuple(back) if returns else ()


def _common(endings: list[list[StateEdge]]) -> tuple[StateEdge, ...]:
    """Return the endings that lead back to the origin from the work of each bundled state."""
    shared = set.intersection(*({edge.label for edge in several if edge.returns} for several in endings))
    return tuple(edge for several in endings for edge in several if edge.returns and edge.label in shared)


def _merged(happenings: Iterable[StateEdge], back: dict[Way, tuple[StateEdge, ...]]) -> Iterator[Edge]:
    labels: dict[Way, list[Label]] = defaultdict(list)
    for edge in happenings:
        labels[edge.way].append(edge.label)
    for way, several in labels.items():
        returning = (edge.label for edge in back.get(way, ()))
        yield Edge(*way, _in_order(several), _in_order(returning))


def _in_order(labels: Iterable[Label]) -> tuple[Label, ...]:
    return tuple(sorted(dict.fromkeys(labels), key=lambda label: (label.tone, label.event == TIMED_OUT)))
