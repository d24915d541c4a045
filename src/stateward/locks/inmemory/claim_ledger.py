"""The ledger of a lock tree: all claims, and the claims that block another. It knows no order and no queue.

Every claim is counted on its node and, as an intention, on each ancestor. The counts along the path of a new claim show
whether it conflicts, whatever the number of other claims; names of blockers are looked up only after a conflict.

Two claims on different nodes conflict on the upper of the two. At most one of them is an intention there, because
intentions are compatible. So the blockers of a claim are recorded on an ancestor, on its own node, or below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from stateward.locks.inmemory.claims import Acquisition
from stateward.locks.inmemory.intention_lock import BLOCKING_FIELDS, BLOCKING_FIELDS_BELOW, UNIT, unpack_counts
from stateward.locks.modes import INTENTION, Mode
from stateward.locks.paths import Path


class LockNode:
    """A node of the tree: the counts of all owners and of each owner, and the claims on this node itself."""

    __slots__ = ("children", "claims", "counts", "parent", "segment", "shares")

    def __init__(self, parent: LockNode | None, segment: str) -> None:
        self.parent = parent
        self.segment = segment
        self.counts = 0
        self.shares: dict[str, int] = {}  # bounded by: the owners of locks: a share that is 0 is removed
        self.children: dict[str, LockNode] = {}
        self.claims: dict[tuple[str, Mode], Acquisition] | None = None  # most nodes are only passed through

    def counts_of_others(self, owner: str) -> int:
        """Return the counts of all other owners: an owner never conflicts with itself."""
        return self.counts - self.shares.get(owner, 0)


class ClaimLedger:
    """All claims on one tree of paths. Not thread-safe: the caller must lock it."""

    __slots__ = ("_numbers", "_owned", "_root")

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        self._numbers = count(1) if numbers is None else numbers
        self._root = LockNode(None, "")
        self._owned: dict[str, dict[int, tuple[Acquisition, LockNode]]] = {}

    def __len__(self) -> int:
        return sum(unpack_counts(self._root.counts).values())  # every claim is counted once on the root

    def claims(self) -> tuple[Acquisition, ...]:
        """Return all claims, in the order in which they were made."""
        found = [claim for owned in self._owned.values() for claim, _ in owned.values()]
        return tuple(sorted(found, key=_number))

    def owned(self, owner: str) -> tuple[Acquisition, ...]:
        """Return an owner's claims, in the order in which they were made."""
        return tuple(claim for claim, _ in self._owned.get(owner, {}).values())

    def find(self, owner: str, path: Path, mode: Mode) -> Acquisition | None:
        """Return the record of a claim, if it was made."""
        if owner not in self._owned:
            return None
        node: LockNode | None = self._root
        for segment in path:
            node = node.children.get(segment) if node is not None else None
        return node.claims.get((owner, mode)) if node is not None and node.claims is not None else None

    def is_free(self, owner: str, path: Path, mode: Mode) -> bool:
        """Return whether a claim conflicts with no other owner's claim, from the counts along the path."""
        against = BLOCKING_FIELDS[INTENTION[mode]]
        node = self._root
        for segment in path:
            if node.counts & against and node.counts_of_others(owner) & against:
                return False
            child = node.children.get(segment)
            if child is None:
                return True
            node = child
        return not node.counts_of_others(owner) & BLOCKING_FIELDS[mode]

    def add(self, owner: str, path: Path, mode: Mode) -> Acquisition:
        """Add a new claim: it is counted on its node, and as an intention on each ancestor."""
        node, unit = self._root, UNIT[INTENTION[mode]]
        for segment in path:
            node.counts += unit
            shares = node.shares
            shares[owner] = shares.get(owner, 0) + unit
            child = node.children.get(segment)
            if child is None:
                child = node.children[segment] = LockNode(node, segment)
            node = child
        unit = UNIT[mode]
        node.counts += unit
        node.shares[owner] = node.shares.get(owner, 0) + unit
        return self._record(Acquisition(owner, str(path), mode, next(self._numbers)), node)

    def remove(self, claim: Acquisition) -> bool:
        """Remove a claim, and every node without claims; returns whether the claim existed."""
        node = self._forget(claim)
        if node is None:
            return False
        owner, unit, unit_above = claim.owner, UNIT[claim.mode], UNIT[INTENTION[claim.mode]]
        while node is not None:
            node.counts -= unit
            shares, parent = node.shares, node.parent
            share = shares[owner] - unit
            if share:
                shares[owner] = share
            else:
                del shares[owner]
                if parent is not None and not node.counts:
                    del parent.children[node.segment]
            node, unit = parent, unit_above
        return True

    def blockers_of(self, owner: str, path: Path, mode: Mode) -> list[Acquisition]:
        """Return all claims of other owners that conflict with this one, oldest first."""
        against = BLOCKING_FIELDS[INTENTION[mode]]
        found: list[Acquisition] = []
        node = self._root
        for segment in path:
            found += _claims_on(node, owner, against)
            child = node.children.get(segment)
            if child is None:
                break
            node = child
        else:
            found += _claims_on(node, owner, BLOCKING_FIELDS[mode])
            found += _claims_below(node, owner, BLOCKING_FIELDS_BELOW[mode])
        return sorted(found, key=_number)

    def nodes(self) -> Iterator[tuple[Path, dict[Mode, int]]]:
        """Yield all claimed nodes, each with the number of claims in each mode."""
        ahead = [(self._root, Path())]
        while ahead:
            node, path = ahead.pop()
            if node.counts:
                yield path, unpack_counts(node.counts)
            ahead += [(child, Path((*path, segment))) for segment, child in node.children.items()]

    def _record(self, claim: Acquisition, node: LockNode) -> Acquisition:
        if node.claims is None:
            node.claims = {}
        node.claims[claim.owner, claim.mode] = claim
        owned = self._owned.get(claim.owner)
        if owned is None:
            owned = self._owned[claim.owner] = {}
        owned[claim.number] = claim, node
        return claim

    def _forget(self, claim: Acquisition) -> LockNode | None:
        owned = self._owned.get(claim.owner, {})
        recorded, node = owned.get(claim.number, (None, self._root))
        if recorded != claim or node.claims is None:
            return None
        del node.claims[claim.owner, claim.mode]
        del owned[claim.number]
        if not owned:
            del self._owned[claim.owner]
        return node


def _number(claim: Acquisition) -> int:
    return claim.number


def _claims_on(node: LockNode, owner: str, against: int) -> Iterator[Acquisition]:
    if node.claims and node.counts_of_others(owner) & against:
        for claim in node.claims.values():
            if claim.owner != owner and UNIT[claim.mode] & against:
                yield claim


def _claims_below(node: LockNode, owner: str, against: int) -> Iterator[Acquisition]:
    ahead = list(node.children.values())
    while ahead:
        below = ahead.pop()
        if below.counts_of_others(owner) & against:
            yield from _claims_on(below, owner, against)
            ahead += below.children.values()
