"""Proving that nothing can get stuck: what is wrong with a lifecycle as a graph."""

from collections.abc import Iterator

from stateward.lifecycle.declaration import Declaration, Fault, FaultCode
from stateward.lifecycle.moves import Move
from stateward.lifecycle.rows import Meaning
from stateward.lifecycle.states import FINAL, GONE, TRANSITIONAL, State
from stateward.lifecycle.table import Lifecycle


def check(subject: Lifecycle | Declaration) -> tuple[Fault, ...]:
    """Return every fault of a lifecycle; a declaration whose rows are faulty is not looked at any further."""
    declaration = subject.declaration if isinstance(subject, Lifecycle) else subject
    faults = declaration.faults()
    if faults:
        return faults
    lifecycle = subject if isinstance(subject, Lifecycle) else Lifecycle(subject)
    return tuple(_graph_faults(lifecycle))


def _graph_faults(lifecycle: Lifecycle) -> Iterator[Fault]:
    exits: dict[State, list[Move]] = {state: [] for state in lifecycle.states}
    for move in lifecycle.every_move():
        exits[move.source].append(move)
    reached = _reached(lifecycle.initial, exits)
    for state, moves in exits.items():
        if state not in reached:
            yield Fault(lifecycle.kind, FaultCode.UNREACHABLE, f"nothing leads there from {lifecycle.initial}", state)
        if state.state_class is FINAL:
            for move in moves:
                if move.target != GONE:
                    yield Fault(
                        lifecycle.kind, FaultCode.FINAL_WITH_EXIT, f"{move.event!r} leads to {move.target}", state
                    )
        elif not any(move.target != state for move in moves):
            yield Fault(lifecycle.kind, FaultCode.DEAD_END, "nothing leads away from it", state)
        if state.state_class is TRANSITIONAL:
            yield from _ways_out(lifecycle.kind, state, exits)


def _ways_out(kind: str, state: State, exits: dict[State, list[Move]]) -> Iterator[Fault]:
    meanings = {move.meaning for move in exits[state]}
    if not _succeeds(state, exits, set()):
        yield Fault(kind, FaultCode.NO_SUCCESS, "no success, nor a step to a state that has one", state)
    if Meaning.FAILURE not in meanings:
        yield Fault(kind, FaultCode.NO_FAILURE, "what if the work fails?", state)
    if Meaning.TIMEOUT not in meanings:
        yield Fault(kind, FaultCode.NO_TIMEOUT, "what if nobody answers?", state)


def _succeeds(state: State, exits: dict[State, list[Move]], seen: set[State]) -> bool:
    seen.add(state)
    for move in exits[state]:
        if move.meaning is Meaning.SUCCESS:
            return True
        steps_on = move.meaning is Meaning.STEP and move.target.state_class is TRANSITIONAL
        if steps_on and move.target not in seen and _succeeds(move.target, exits, seen):
            return True
    return False


def _reached(initial: State, exits: dict[State, list[Move]]) -> set[State]:
    reached, ahead = {initial}, [initial]
    while ahead:
        for move in exits.get(ahead.pop(), ()):
            if move.target not in reached:
                reached.add(move.target)
                ahead.append(move.target)
    return reached
