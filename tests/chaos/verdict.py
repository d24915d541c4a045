"""Checks of the ledger: pure functions from recorded effects to violations."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from tests.chaos.crane_kind import ACTIVE, CAPACITY
from tests.chaos.ledger import Entry, What
from tests.chaos.runs import Run


def collisions(runs: Sequence[Run]) -> Iterator[str]:
    """Tell of two runs at work on one object at once, both of processes that were awake."""
    for pair in _at_once(_by(runs, lambda run: run.object)):
        yield f"at work at once on {pair[0].object}: {_told(pair)}"


def lock_violations(runs: Sequence[Run]) -> Iterator[str]:
    """Tell of two runs at once whose locks exclude each other."""
    for pair in _at_once(_by(runs, lambda run: run.lock.rpartition(" ")[2])):
        if any(run.lock.startswith("X") for run in pair):
            yield f"locks {pair[0].lock} and {pair[1].lock} held at once: {_told(pair)}"


def _by(runs: Iterable[Run], what: Callable[[Run], str]) -> list[list[Run]]:
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if what(run) and not run.doubtful:
            groups[what(run)].append(run)
    return list(groups.values())


def _at_once(groups: Iterable[Sequence[Run]]) -> Iterator[tuple[Run, Run]]:
    """Yield pairs that overlap; the runs of a group are in the order of their beginnings."""
    for runs in groups:
        open_runs: list[Run] = []
        for run in runs:
            open_runs = [one for one in open_runs if one.last > run.first]
            yield from ((one, run) for one in open_runs)
            open_runs.append(run)


def crowds(runs: Sequence[Run]) -> Iterator[str]:
    """Tell of lanes with more at work than their capacity, and of more active lanes than their group allows."""
    limited = [run for run in runs if run.lane and not run.doubtful]
    changes = sorted([(run.first, 1, run.lane) for run in limited] + [(run.last, -1, run.lane) for run in limited])
    at_work: Counter[str] = Counter()
    for line, change, lane in changes:
        at_work[lane] += change
        if change > 0 and at_work[lane] > CAPACITY:
            yield f"{at_work[lane]} at work in lane {lane} at line {line}"
        active = [name for name, count in at_work.items() if count]
        if change > 0 and len(active) > ACTIVE:
            yield f"{len(active)} lanes active at line {line}: {', '.join(sorted(active))}"


def doubled(runs: Sequence[Run]) -> Iterator[str]:
    """Tell of effects that were asked for twice by processes that were awake: a look would have told them."""
    asked: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.asked and not run.doubtful:
            asked[run.op].append(run)
    for op, them in asked.items():
        if sum(run.asked for run in them) > 1:
            yield f"the effect of {op} was asked for {len(them)} times: {_told(them)}"


def never_ended(runs: Sequence[Run]) -> Iterator[str]:
    """Tell of handlers that nobody has heard of since they began, though their process was not killed."""
    yield from (f"never ended: {_told([run])}" for run in runs if run.ended == float("inf"))


def _told(runs: Iterable[Run]) -> str:
    return "; ".join(f"{r.op} epoch {r.epoch} by {r.worker} (lines {r.first} to {r.last})" for r in runs)


class Effects(Struct, frozen=True):
    """What the provider was asked for."""

    applied: frozenset[str]  # operations whose effect took place: the first request with its token
    recognised: int  # requests whose token was known


def effects_of(entries: Iterable[Entry]) -> Effects:
    """Return the effects that took place."""
    asked = [entry.op for entry in entries if entry.what is What.APPLY]
    return Effects(frozenset(asked), len(asked) - len(set(asked)))


def continuations(entries: Sequence[Entry], what: What) -> list[float]:
    """Return for each operation that a process was at when it was killed (or stopped) how long it then lay idle.

    Only the default lane counts: in a limited one, an operation may also have to wait for its lane's turn.
    """
    last: dict[str, Entry] = {}
    waiting: dict[str, Entry] = {}
    found: list[float] = []
    for entry in entries:
        if entry.what is what:
            waiting.update((op, entry) for op, one in last.items() if one.worker == entry.worker)
            last = {op: one for op, one in last.items() if one.worker != entry.worker}
        elif entry.what in (What.BEGIN, What.LOOK) and not entry.lane and not entry.lock:
            before = waiting.pop(entry.op, None)
            if before is not None and entry.worker != before.worker:
                found.append(entry.at - before.at)
            last[entry.op] = entry
    return found
