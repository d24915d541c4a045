"""What a lock costs, and whether that depends on how many others are held."""

from collections.abc import Callable
from contextlib import suppress
from time import perf_counter

from bench.figures import Line, ratio
from stateward.locks import LockConflict, LockQueue, LockTree, Mode, parse_path

DEPTH = 10
HELD = (10, 1_000, 100_000)
ROUNDS, REPEATS = 2_000, 15
ABOVE = "".join(f"/level{depth}" for depth in range(1, DEPTH))
PATH = f"{ABOVE}/mine"


def report() -> list[Line]:
    """Measure and return lines to print."""
    trees = {held: tree_with(held) for held in HELD}
    raw, *figures, reading, queued = fastest([raw_counts(), *map(one_lock, trees.values()), read_path, one_queued()])
    lines: list[Line] = []
    for held, seconds in zip(HELD, figures, strict=True):
        what = f"take and give back X on a path {DEPTH} deep, {held:,} others held"
        lines += [ratio(what, seconds / raw, f"the time of {DEPTH + 1} counts up and down"), f"  {rate(seconds)}"]
    flat = f"take and give back X, {HELD[-1]:,} others held"
    return [
        f"locks: take and give back X on a path {DEPTH} deep (IX on {DEPTH} ancestors)",
        *lines,
        ratio(flat, figures[-1] / figures[0], f"the time with {HELD[0]} held"),
        f"  raw counting          {rate(raw)}   {DEPTH + 1} counts in a dict up and down, behind a call each",
        f"  with a fair queue     {rate(queued)}   {HELD[0]} others held, nobody waiting",
        f"  reading such a path   {rate(reading)}   not in the figures above",
        f"  a refusal that names all {HELD[-1]:,} holders takes {refusal(trees[HELD[-1]]) * 1_000:.0f} ms",
    ]


def tree_with(held: int) -> LockTree:
    """Return a tree in which as many siblings of the path are locked, each by another owner."""
    tree = LockTree()
    for number in range(held):
        tree.acquire(f"owner{number}", f"{ABOVE}/sibling{number}", Mode.X)
    return tree


def one_lock(tree: LockTree) -> Callable[[], object]:
    path = parse_path(PATH)
    return lambda: tree.release(tree.acquire("me", path, Mode.X))


def one_queued() -> Callable[[], object]:
    queue, path = LockQueue(), parse_path(PATH)
    for number in range(HELD[0]):
        queue.acquire(f"owner{number}", f"{ABOVE}/sibling{number}", Mode.X)
    return lambda: queue.release(queue.acquire("me", path, Mode.X))


def read_path() -> object:
    return parse_path(PATH)


def raw_counts() -> Callable[[], object]:
    """Return the least that anything with counts on each node must do."""
    nodes = [f"node{number}" for number in range(DEPTH + 1)]
    counts: dict[str, int] = {}

    def up() -> None:
        for node in nodes:
            counts[node] = counts.get(node, 0) + 1

    def down() -> None:
        for node in nodes:
            counts[node] -= 1

    return lambda: (up(), down())  # type: ignore[func-returns-value]


def refusal(tree: LockTree) -> float:
    start = perf_counter()
    with suppress(LockConflict):
        tree.acquire("me", "/", Mode.X)
    return perf_counter() - start


def fastest(calls: list[Callable[[], object]]) -> list[float]:
    """Return the best time of each call; they take turns, so that a busy machine is unjust to none of them."""
    best = [float("inf")] * len(calls)
    for _ in range(REPEATS):
        for which, call in enumerate(calls):
            start = perf_counter()
            for _ in range(ROUNDS):
                call()
            best[which] = min(best[which], (perf_counter() - start) / ROUNDS)
    return best


def rate(seconds: float) -> str:
    return f"{1 / seconds:>9,.0f} a second"
