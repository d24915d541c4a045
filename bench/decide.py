"""How fast `decide` is, against the least that a decision can cost and against other state machines.

The decision is a guarded one: it needs a fact, and is given it. The least that can answer "what follows?" is a
dictionary of (state, event) behind a function call, without actor, guard or reason. The other machines do a guarded
move there and one back, and keep the new state themselves, which ours leaves to the store; automaton knows no guards,
so its caller checks.
"""

from automaton.machines import FiniteMachine
from statemachine import State as PeerState
from statemachine import StateMachine
from transitions import Machine

from bench.figures import Line, gain, ratio
from bench.measure import Case, duration, take_turns
from stateward.domains.mci.lifecycle import VM, VmState
from stateward.lifecycle import FORCE, USER, Move, Refusal, decide

ROUNDS = 201
WHAT = "a guarded decision"
FACTS = frozenset({FORCE})
TARGETS = {"a bare look-up": 0.5, "automaton": 2, "transitions": 20, "python-statemachine": 200}
TABLE = {(move.source.word, move.event): move.target.word for move in VM.every_move()}


def look_up(table: dict[tuple[str, str], str], state: str, event: str) -> str:
    return table[state, event]


class Lamp:
    """What the machine of `transitions` moves."""

    state: str

    def forced(self) -> bool:
        return FORCE in FACTS


class PeerLamp(StateMachine):
    """The same for python-statemachine."""

    off = PeerState(initial=True)
    on = PeerState()
    go = off.to(on, cond="forced")
    back = on.to(off, cond="forced")

    def forced(self) -> bool:
        return FORCE in FACTS


def lamp_of_transitions() -> Lamp:
    lamp = Lamp()
    moves = [
        {"trigger": "go", "source": "off", "dest": "on", "conditions": "forced"},
        {"trigger": "back", "source": "on", "dest": "off", "conditions": "forced"},
    ]
    lamp.machine = Machine(lamp, ["off", "on"], transitions=moves, initial="off", auto_transitions=False)  # type: ignore[attr-defined]
    return lamp


def lamp_of_automaton() -> FiniteMachine:
    machine = FiniteMachine()
    machine.add_state("off")
    machine.add_state("on")
    machine.add_transition("off", "on", "go")
    machine.add_transition("on", "off", "back")
    machine.default_start_state = "off"
    machine.initialize()
    return machine


def cases() -> list[Case]:
    ours = {"decide": decide, "VM": VM, "USER": USER, "FACTS": FACTS, "failed": VmState.FAILED, "word": "Failed"}
    there_and_back = "lamp.go(); lamp.back()"
    guarded = "if FORCE in FACTS: lamp.process_event('go')\nif FORCE in FACTS: lamp.process_event('back')"
    return [
        Case("decide", "decide(VM, failed, 'terminate', USER, FACTS)", ours),
        Case("a bare look-up", "look_up(TABLE, 'Failed', 'terminate')", {"look_up": look_up, "TABLE": TABLE}),
        Case("automaton", guarded, {"lamp": lamp_of_automaton(), "FORCE": FORCE, "FACTS": FACTS}, 2),
        Case("transitions", there_and_back, {"lamp": lamp_of_transitions()}, 2),
        Case("python-statemachine", there_and_back, {"lamp": PeerLamp()}, 2),
        Case("decide, the state a plain word", "decide(VM, word, 'terminate', USER, FACTS)", ours),
        Case("decide, a refusal", "decide(VM, failed, 'terminate', USER)", ours),
    ]


def report() -> list[Line]:
    """Measure and return lines to print."""
    assert isinstance(decide(VM, VmState.FAILED, "terminate", USER, FACTS), Move)
    assert isinstance(decide(VM, VmState.FAILED, "terminate", USER), Refusal)
    ours, bare, *peers, word, refusal = timings = take_turns(cases(), ROUNDS)
    return [
        "decide: a guarded move, against the least that a decision costs and against other state machines",
        *(gain(WHAT, one.times(ours), f"the speed of {one.name}", TARGETS[one.name]) for one in (bare, *peers)),
        ratio("the same, the state a plain word", word.times(ours), f"the time of {WHAT}"),
        ratio("a refusal, with all reasons", refusal.times(ours), f"the time of {WHAT}"),
        *(f"  {duration(timing.seconds)}  {timing.name}" for timing in timings),
    ]
