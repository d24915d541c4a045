"""A tree of locks with a fair queue: a request that conflicts may wait.

Held and waiting claims are in one ledger, and a claim waits for every older claim, held or waiting, that conflicts with
it. That makes the queue fair: a waiting X blocks every later IX, so that a stream of IX cannot starve it. A claim
without conflicts overtakes.

So the claims that a claim waits for are known when it is made: younger claims that conflict wait for it. It is granted
when the last of them has left, and a count of them suffices.

An owner that waits for itself through others would wait for ever (deadlock). Only a new request can close such a cycle,
so each request that has to wait is checked: if a blocker waits, directly or through others, for a claim of its owner,
the request is refused. The same rule refuses an owner that holds what an older claim waits for and requests more
that conflicts with that claim; granting it would starve the older claim.
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
"""For each waiting owner: its waiting claim, and the owner that it waits for."""


class GrantedLock(Struct, frozen=True):
    """A granted request."""

    acquisition: Acquisition


class WaitTicket(Struct, frozen=True):
    """A request in the queue, and its blockers. Its acquisition is held as soon as it is granted."""

    acquisition: Acquisition
    blockers: tuple[LockBlocker, ...]


class LockQueue:
    """The locks on one tree of paths, with a queue, first come first served. Thread-safe; waiting is up to the caller.

    No method blocks or uses a clock: a request that must wait gets a ticket. A method that causes tickets to be granted
    returns them, so that the caller can wake their owners.
    """

    __slots__ = ("_behind", "_guard", "_ledger", "_missing", "_queue")

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        self._ledger = ClaimLedger(numbers)
        self._guard = Lock()
        self._queue: dict[int, Acquisition] = {}  # the claims that wait, by number
        self._missing: dict[int, int] = {}  # for each of them, how many it still waits for
        self._behind: dict[int, set[int]] = {}  # for each claim that is waited for, the numbers of those that do

    def request(self, owner: str, path: str | Path, mode: Mode) -> GrantedLock | WaitTicket:
        """Take a lock or join the queue for it; raises `Deadlock` if the wait would never end."""
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
        """Take a lock at once, or raise a `LockConflict` that names all blockers, waiting ones included."""
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
        """Release a lock and return the tickets that this grants, in the order of the queue."""
        with self._guard:
            return self._leave((acquisition,))

    def release_all(self, owner: str) -> tuple[GrantedLock, ...]:
        """Release all locks of an owner, withdraw its requests, and return the tickets that this grants."""
        with self._guard:
            return self._leave(self._ledger.owned(owner))

    def withdraw(self, ticket: WaitTicket) -> tuple[GrantedLock, ...]:
        """Leave the queue and return the tickets that this grants.

        A ticket that was granted meanwhile is released, so that a caller that times out at that moment leaks no lock.
        """
        return self.release(ticket.acquisition)

    def in_progress(self) -> tuple[Acquisition, ...]:
        """Return all held locks, in the order of their requests."""
        with self._guard:
            return tuple(claim for claim in self._ledger.claims() if claim.number not in self._queue)

    def waiting(self) -> tuple[Acquisition, ...]:
        """Return the waiting requests, oldest first."""
        with self._guard:
            return tuple(self._queue.values())

    def nodes(self) -> dict[str, dict[Mode, int]]:
        """Return all claimed nodes, held or awaited, with the number of claims in each mode."""
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
        """Return the shortest chain by which a blocker waits for the owner, or nothing if none does."""
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
