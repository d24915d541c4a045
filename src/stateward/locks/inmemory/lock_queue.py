"""A tree of locks with a fair queue: who cannot have a lock now may wait for it.

Held and waiting claims stand in one ledger, and a claim waits for every older claim, held or waiting, that it cannot
go together with. That is all there is to fairness: an X that waits is in the way of every later IX, so no stream of
them can starve it, while a claim that meets nobody overtakes freely.

It also means that whom a claim waits for is settled when it is made: younger claims that go against it wait for it, so
nothing is ever added, and a claim is granted when the last of those that it waits for has left. We need only count.

An owner that waits for itself through others would wait for ever. Such a cycle can only be closed by a new request, so
each one that has to wait is checked: who waits, at however many removes, for what its owner already claims? If that
includes one of the blockers, the request is refused. So is that of an owner who holds what an older claim waits for,
and asks for more that goes against that claim: to let it pass would be to let it starve the older one.
"""

from collections.abc import Iterable, Iterator
from threading import Lock
from typing import TypeAlias

from msgspec import Struct

from stateward.locks.inmemory.claim_ledger import ClaimLedger
from stateward.locks.inmemory.claims import Acquisition, Deadlock, LockBlocker, LockConflict, as_blocker, check_name
from stateward.locks.modes import Mode, as_mode
from stateward.locks.paths import Path, parse_path

WaitChains: TypeAlias = dict[str, tuple[Acquisition, str]]
"""For each owner who waits: a claim that waits, and the owner whom it waits for."""


class GrantedLock(Struct, frozen=True):
    """A request that has its lock."""

    acquisition: Acquisition


class WaitTicket(Struct, frozen=True):
    """A ticket: a request in the queue, and who is ahead of it. Its acquisition is held from when it is granted."""

    acquisition: Acquisition
    blockers: tuple[LockBlocker, ...]


class LockQueue:
    """The locks on one tree of paths, with a queue, first come first served. Thread-safe; waiting is up to the caller.

    Nothing here blocks or knows the time: who must wait gets a ticket, and whatever makes tickets come true returns
    them, for the caller to wake their owners.
    """

    __slots__ = ("_behind", "_guard", "_ledger", "_missing", "_queue")

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        self._ledger = ClaimLedger(numbers)
        self._guard = Lock()
        self._queue: dict[int, Acquisition] = {}  # the claims that wait, by number
        self._missing: dict[int, int] = {}  # for each of them, how many it still waits for
        self._behind: dict[int, set[int]] = {}  # for each claim that is waited for, the numbers of those that do

    def request(self, owner: str, path: str | Path, mode: Mode) -> GrantedLock | WaitTicket:
        """Take a lock or join the queue for it; raises `Deadlock` if that wait could never end."""
        check_name("owner", owner)
        place, mode = parse_path(path), as_mode(mode)
        with self._guard:
            known = self._ledger.find(owner, place, mode)
            if known is None and self._ledger.is_free(owner, place, mode):
                known = self._ledger.add(owner, place, mode)
            if known is None:
                known = self._enqueue(owner, place, mode)
            if known.number not in self._queue:
                return GrantedLock(known)
            return WaitTicket(known, self._blockers(known.owner, place, mode, known.number))

    def acquire(self, owner: str, path: str | Path, mode: Mode) -> Acquisition:
        """Take a lock at once, or raise a `Conflict` that names every blocker, those who only wait included."""
        check_name("owner", owner)
        place, mode = parse_path(path), as_mode(mode)
        with self._guard:
            known = self._ledger.find(owner, place, mode)
            if known is not None and known.number not in self._queue:
                return known
            if known is None and self._ledger.is_free(owner, place, mode):
                return self._ledger.add(owner, place, mode)
            blockers = self._blockers(owner, place, mode, known.number if known is not None else None)
        raise LockConflict(owner, str(place), mode, blockers)

    def release(self, acquisition: Acquisition) -> tuple[GrantedLock, ...]:
        """Give one lock back and return the tickets that are granted by that, in the order of the queue."""
        with self._guard:
            return self._leave((acquisition,))

    def release_all(self, owner: str) -> tuple[GrantedLock, ...]:
        """Give back all that an owner holds, withdraw all it waits for, and return the tickets granted by that."""
        with self._guard:
            return self._leave(self._ledger.owned(owner))

    def withdraw(self, ticket: WaitTicket) -> tuple[GrantedLock, ...]:
        """Leave the queue and return the tickets that are granted by that.

        A ticket that was granted in the meantime is given back: who loses patience at that moment leaks nothing.
        """
        return self.release(ticket.acquisition)

    def in_progress(self) -> tuple[Acquisition, ...]:
        """Return all locks that are held, in the order in which they were asked for."""
        with self._guard:
            return tuple(claim for claim in self._ledger.claims() if claim.number not in self._queue)

    def waiting(self) -> tuple[Acquisition, ...]:
        """Return the queue, first come first."""
        with self._guard:
            return tuple(self._queue.values())

    def nodes(self) -> dict[str, dict[Mode, int]]:
        """Return every node that is claimed, by holders or in the queue, with how often in each mode."""
        with self._guard:
            return {str(path): counts for path, counts in self._ledger.nodes()}

    def __len__(self) -> int:
        return len(self._ledger)

    def _enqueue(self, owner: str, place: Path, mode: Mode) -> Acquisition:
        ahead = self._ledger.blockers_of(owner, place, mode)
        cycle = self._cycle(owner, {claim.owner for claim in ahead})
        if cycle:
            request = LockBlocker(owner, str(place), mode, waiting=True)
            raise Deadlock(owner, str(place), mode, self._blockers(owner, place, mode), (request, *cycle))
        claim = self._ledger.add(owner, place, mode)
        self._queue[claim.number] = claim
        self._missing[claim.number] = len(ahead)
        for other in ahead:
            self._behind.setdefault(other.number, set()).add(claim.number)
        return claim

    def _leave(self, claims: Iterable[Acquisition]) -> tuple[GrantedLock, ...]:
        freed: list[Acquisition] = []
        for claim in claims:
            if self._ledger.remove(claim):
                if claim.number in self._queue:
                    self._dequeue(claim)
                freed += self._freed_by(claim)
        return tuple(GrantedLock(claim) for claim in sorted(freed, key=lambda claim: claim.number))

    def _dequeue(self, claim: Acquisition) -> None:
        del self._queue[claim.number], self._missing[claim.number]
        for other in self._ledger.blockers_of(claim.owner, parse_path(claim.path), claim.mode):
            behind = self._behind.get(other.number, set())
            behind.discard(claim.number)
            if not behind:
                self._behind.pop(other.number, None)

    def _freed_by(self, gone: Acquisition) -> Iterator[Acquisition]:
        for number in self._behind.pop(gone.number, ()):
            self._missing[number] -= 1
            if not self._missing[number]:
                del self._missing[number]
                yield self._queue.pop(number)

    def _blockers(self, owner: str, place: Path, mode: Mode, before: int | None = None) -> tuple[LockBlocker, ...]:
        ahead = self._ledger.blockers_of(owner, place, mode)
        return tuple(
            as_blocker(claim, waiting=claim.number in self._queue)
            for claim in ahead
            if before is None or claim.number < before
        )

    def _cycle(self, owner: str, blockers: set[str]) -> tuple[LockBlocker, ...]:
        """Return how one of the blockers waits for the owner, by the shortest way, or nothing if none does."""
        waits: WaitChains = {}
        ahead = [owner]
        for current in ahead:  # grows as we walk: breadth first
            for claim in self._waiting_for(current):
                if claim.owner not in waits:
                    waits[claim.owner] = claim, current
                    ahead.append(claim.owner)
                    if claim.owner in blockers:
                        return tuple(_chain(claim.owner, owner, waits))
        return ()

    def _waiting_for(self, owner: str) -> Iterator[Acquisition]:
        for claim in self._ledger.owned(owner):
            for number in sorted(self._behind.get(claim.number, ())):
                yield self._queue[number]


def _chain(first: str, last: str, waits: WaitChains) -> Iterator[LockBlocker]:
    current = first
    while current != last:
        claim, current = waits[current]
        yield as_blocker(claim, waiting=True)
