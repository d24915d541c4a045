"""How often a node is held in each mode, as one whole number.

Each mode has a field of 32 bits in it. Taking a lock is then one addition, giving it back one subtraction, and whether
any of several modes is held is one `&`; a node that is free is 0. An owner's own share is subtracted field by field
with one `-`, which cannot borrow from a neighbour, because nobody has more than all have together.
"""

from stateward.locks.modes import Mode, compatible, intention

BITS = 32
FIELD = (1 << BITS) - 1

# Intention-exclusive and exclusive are the lowest, because deploys take nothing else and small numbers add faster.
PLACES = (Mode.IX, Mode.X, Mode.IS, Mode.S, Mode.SIX)

UNIT: dict[Mode, int] = {mode: 1 << BITS * place for place, mode in enumerate(PLACES)}
"""What one lock in a mode adds."""


def _fields(modes: list[Mode]) -> int:
    return sum(FIELD * UNIT[mode] for mode in modes)


AGAINST: dict[Mode, int] = {mode: _fields([other for other in Mode if not compatible(mode, other)]) for mode in Mode}
"""The fields that must be 0 on a node for a lock in this mode."""

AGAINST_BELOW: dict[Mode, int] = {
    mode: _fields([other for other in Mode if not compatible(mode, intention(other))]) for mode in Mode
}
"""The fields that stand, on a node, for locks that stop an ancestor of it from being locked in this mode."""


def tally(counts: int) -> dict[Mode, int]:
    """Unfold the number into how often each mode is held, leaving out those that are not."""
    folded = {mode: counts // UNIT[mode] & FIELD for mode in Mode}
    return {mode: times for mode, times in folded.items() if times}
