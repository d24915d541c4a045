"""The tree and the queue against a model of flat lists, in which all pairs of claims are compared."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import Struct

from stateward.locks import (
    Acquisition,
    Deadlock,
    GrantedLock,
    LockBlocker,
    LockConflict,
    LockQueue,
    LockTree,
    Mode,
    WaitTicket,
    compatible,
    intention,
)
from tests.long_forms import examples

PATHS = ["/", "/a", "/ab", "/a/b", "/a/bc", "/a/b/c", "/a/b/d", "/b", "/b/c/d"]
OWNERS = ["o1", "o2", "o3", "o4"]

any_owner, any_path, any_mode = st.sampled_from(OWNERS), st.sampled_from(PATHS), st.sampled_from(Mode)
# Mostly what actions take, so that runs do not end with everybody locked out.
likely_mode = st.one_of(st.sampled_from([Mode.X, Mode.S]), any_mode)


class Claim(Struct, frozen=True):
    owner: str
    path: str
    mode: Mode


def claim_of(acquisition: Acquisition) -> Claim:
    return Claim(acquisition.owner, acquisition.path, acquisition.mode)


def spelled_out(claim: Claim) -> dict[str, Mode]:
    """Return every node that a claim touches, with the mode in which it does."""
    segments = [segment for segment in claim.path.split("/") if segment]
    above = {"/" + "/".join(segments[:depth]): intention(claim.mode) for depth in range(len(segments))}
    return {**above, claim.path: claim.mode}


def clash(a: Claim, b: Claim) -> bool:
    if a.owner == b.owner:
        return False
    mine, theirs = spelled_out(a), spelled_out(b)
    return any(not compatible(mine[node], theirs[node]) for node in mine.keys() & theirs.keys())


def counted(claims: list[Claim]) -> dict[str, dict[Mode, int]]:
    nodes: dict[str, Counter[Mode]] = {}
    for claim in claims:
        for node, mode in spelled_out(claim).items():
            nodes.setdefault(node, Counter())[mode] += 1
    return {node: dict(modes) for node, modes in nodes.items()}


def shown(claim: Claim, *, waiting: bool = False) -> LockBlocker:
    return LockBlocker(claim.owner, claim.path, claim.mode, waiting)


class TreeAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tree = LockTree()
        self.held: list[Claim] = []
        self.records: list[Acquisition] = []

    @rule(owner=any_owner, path=any_path, mode=likely_mode)
    def acquire(self, owner: str, path: str, mode: Mode) -> None:
        claim = Claim(owner, path, mode)
        blockers = tuple(shown(other) for other in self.held if clash(claim, other))
        assert self.tree.blockers(owner, path, mode) == blockers
        try:
            taken = self.tree.acquire(owner, path, mode)
        except LockConflict as conflict:
            refused = conflict.blockers
        else:
            refused = ()
            assert claim_of(taken) == claim
            self.records.append(taken)
            self.held += [claim] if claim not in self.held else []
        assert refused == blockers

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def release_something_perhaps_again(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from(self.records))
        current = record in self.tree.in_progress()
        assert self.tree.release(record) is current
        if current:
            self.held.remove(claim_of(record))

    @rule(owner=any_owner)
    def release_all(self, owner: str) -> None:
        given_back = [claim_of(one) for one in self.tree.release_all(owner)]
        assert given_back == [claim for claim in self.held if claim.owner == owner]
        self.held = [claim for claim in self.held if claim.owner != owner]

    @invariant()
    def the_records_are_those_of_the_model(self) -> None:
        assert [claim_of(one) for one in self.tree.in_progress()] == self.held
        assert len(self.tree) == len(self.held)

    @invariant()
    def exactly_what_is_held_is_counted_and_no_other_node_exists(self) -> None:
        assert self.tree.nodes() == counted(self.held)

    @invariant()
    def what_is_held_goes_together(self) -> None:
        assert not any(clash(a, b) for a in self.held for b in self.held)


class QueueAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = LockQueue()
        self.held: list[Claim] = []
        self.line: list[Claim] = []
        self.records: dict[Claim, Acquisition] = {}

    def ahead_of(self, claim: Claim) -> list[Claim]:
        """Return who is in the way: holders, and those who came before."""
        earlier = self.line[: self.line.index(claim)] if claim in self.line else self.line
        return [other for other in [*self.held, *earlier] if clash(claim, other)]

    def waits_for(self, extra: Claim | None = None) -> dict[str, set[str]]:
        """Return, for each owner, the owners it waits for."""
        edges: dict[str, set[str]] = {}
        for claim in [*self.line, *([extra] if extra is not None else [])]:
            edges.setdefault(claim.owner, set()).update(other.owner for other in self.ahead_of(claim))
        return edges

    def advance(self) -> list[Claim]:
        """Let in, in order, whoever has nobody in the way any more."""
        let_in = []
        for claim in list(self.line):
            if not self.ahead_of(claim):
                self.line.remove(claim)
                self.held.append(claim)
                let_in.append(claim)
        return let_in

    def blockers(self, claim: Claim) -> set[LockBlocker]:
        return {shown(other, waiting=other in self.line) for other in self.ahead_of(claim)}

    @rule(owner=any_owner, path=any_path, mode=likely_mode)
    def request(self, owner: str, path: str, mode: Mode) -> None:
        claim = Claim(owner, path, mode)
        known = claim in self.held or claim in self.line
        deadlocked = not known and has_cycle(self.waits_for(claim))
        blockers = self.blockers(claim) if claim not in self.held else set()
        try:
            answer = self.queue.request(owner, path, mode)
        except Deadlock as deadlock:
            self.check_cycle(claim, deadlock)
            refused = True
        else:
            refused = False
            assert isinstance(answer, WaitTicket if blockers else GrantedLock)
            assert {*answer.blockers} == blockers if isinstance(answer, WaitTicket) else True
            self.records[claim] = answer.acquisition
            if not known:
                (self.line if blockers else self.held).append(claim)
        assert refused is deadlocked

    def check_cycle(self, claim: Claim, deadlock: Deadlock) -> None:
        links = [Claim(link.owner, link.path, link.mode) for link in deadlock.cycle]
        assert links[0] == claim
        assert all(link.waiting for link in deadlock.cycle)
        assert {*deadlock.blockers} == self.blockers(claim)
        for link, following in zip(links, [*links[1:], claim], strict=True):
            assert following.owner in {other.owner for other in self.ahead_of(link)}

    @rule(owner=any_owner, path=any_path, mode=likely_mode)
    def acquire_without_waiting(self, owner: str, path: str, mode: Mode) -> None:
        claim = Claim(owner, path, mode)
        blockers = self.blockers(claim) if claim not in self.held else set()
        try:
            taken = self.queue.acquire(owner, path, mode)
        except LockConflict as conflict:
            refused = {*conflict.blockers}
        else:
            refused = set()
            self.records[claim] = taken
            self.held += [claim] if claim not in self.held else []
        assert refused == blockers

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def release_or_withdraw_perhaps_again(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(sorted(self.records, key=str)))
        granted = self.queue.release(self.records[claim])
        self.leave([claim])
        assert [claim_of(one.acquisition) for one in granted] == self.advance()

    @rule(owner=any_owner)
    def release_all(self, owner: str) -> None:
        granted = self.queue.release_all(owner)
        self.leave([claim for claim in [*self.held, *self.line] if claim.owner == owner])
        assert [claim_of(one.acquisition) for one in granted] == self.advance()

    def leave(self, claims: list[Claim]) -> None:
        self.held = [claim for claim in self.held if claim not in claims]
        self.line = [claim for claim in self.line if claim not in claims]

    @invariant()
    def holders_and_queue_are_those_of_the_model(self) -> None:
        assert {claim_of(one) for one in self.queue.in_progress()} == {*self.held}
        assert [claim_of(one) for one in self.queue.waiting()] == self.line
        assert self.queue.nodes() == counted([*self.held, *self.line])

    @invariant()
    def what_is_held_goes_together(self) -> None:
        assert not any(clash(a, b) for a in self.held for b in self.held)

    @invariant()
    def everybody_who_waits_has_somebody_in_the_way_and_nobody_waits_in_a_circle(self) -> None:
        assert all(self.ahead_of(claim) for claim in self.line)
        assert not has_cycle(self.waits_for())

    def teardown(self) -> None:
        """Let every holder finish, and see that nobody is left waiting and nothing is left over."""
        while self.held:
            self.queue.release(self.records[self.held[0]])
            self.leave([self.held[0]])
            self.advance()
            self.holders_and_queue_are_those_of_the_model()
        assert self.line == []
        assert len(self.queue) == 0
        assert (self.queue._queue, self.queue._missing, self.queue._behind) == ({}, {}, {})


def has_cycle(edges: dict[str, set[str]]) -> bool:
    """Say whether some owner reaches itself."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            new = edges.get(ahead.pop(), set()) - seen
            seen |= new
            ahead += new
        return seen

    return any(owner in reach(owner) for owner in edges)


TestTree = TreeAgainstModel.TestCase
TestTree.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestQueue = QueueAgainstModel.TestCase
TestQueue.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
