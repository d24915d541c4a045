"""The figures for readers: docs/figures.md with all of them, and the few in the README; written from what is kept."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from bench.figures import Figure, shown
from bench.kept import ROOT, Circumstances, Kept, Run

PAGE = ROOT / "docs" / "figures.md"
README = ROOT / "README.md"
BEGIN, END = "<!-- figures: written by make bench -->", "<!-- end of figures -->"

HEADLINES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "decide": (
        ("a guarded decision", "the speed of automaton"),
        ("a guarded decision", "the speed of transitions"),
        ("a guarded decision", "the speed of python-statemachine"),
    ),
    "memory": (("an object with its state, in memory", "the memory of one of transitions"),),
    "engine.throughput": (
        ("an action, accepted to ended, on PostgreSQL", "the speed of bare SQL with the same rows"),
        ("an action, accepted to ended, on PostgreSQL", "the speed of pgqueuer"),
        ("an action, accepted to ended, on PostgreSQL", "the speed of pgqueuer, fed in batches"),
        ("an action, accepted to ended, on PostgreSQL", "the speed of Procrastinate"),
        ("an action, accepted to ended, on PostgreSQL", "the speed of DBOS"),
    ),
    "engine.group": (("one action on 10,000 objects, PostgreSQL", "the time of bare SQL in one batch"),),
    "engine.growth": (("an action among 1,000,000 objects, PostgreSQL", "the time among 10,000"),),
    "engine.recovery": (("kill -9 of one of two workers, until all goes on, PostgreSQL", "the lease"),),
    "server": (("GET of an object", "the time of a bare Litestar handler with the same payload"),),
    "mci": (("suspend of 10,000 VMs over 40 regions", "the ideal schedule"),),
    "edge": (("an agent's heartbeat and its answer", "the time of a bare WebSocket echo"),),
}
"""What the README shows."""

ABOUT = """# Figures

`make bench` writes this page, `bench/figures.json`, and the figures of the README. Each benchmark's figures are
those of its last run; [the last table](#when-where-against-what) names the commit that was measured, and the code may
have changed since (`git log COMMIT.. -- src` shows how). On a shared machine a time alone says nothing. So the main
figures are ratios: two things are timed in turns in the same run, and disturbed alike ([how](../bench/measure.py)).
Read "figure times": 2 times the speed of a peer is good, 2 times the time of bare SQL is the cost of the promises.
Ratios against an ideal schedule depend on the clock, too: the load of the machine, which is listed below, makes them
worse.

`make bench ARGS="decide memory"` runs some of them, and renews only their rows. `make bench-compare` runs them again,
shows every ratio that is worse by more than 20 % than on this page, and fails if there is one. The code in
[bench/](../bench/__main__.py) says what is measured and why.
"""


def page(kept: Kept) -> str:
    """Return docs/figures.md."""
    parts = [ABOUT, "## Ratios\n", *_table(kept, _ratio_rows, "| what | figure | times | target |")]
    parts += ["\n## Plain figures\n", "Of this machine and that hour, with whatever else ran on it.\n"]
    parts += _table(kept, _plain_rows, "| what | figure | unit | target |")
    parts += ["\n## When, where, against what\n", *_runs(kept)]
    return "\n".join(parts) + "\n"


def short(kept: Kept) -> str:
    """Return the table of the README, and the targets that are missed among all figures."""
    chosen = [(bench, run, keys) for bench, keys in HEADLINES.items() if (run := kept.runs.get(bench))]
    rows = [row for one in chosen for row in _headlines(*one)]
    head = "| what | figure | times | target | measured at | repeat it |"
    return "\n".join([head, "|---|---:|---|---|---|---|", *rows, "", _missed(kept)])


def with_short(readme: str, kept: Kept) -> str:
    """Return the README with its figures as they are kept."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{short(kept)}\n\n{END}{after}"


def write(kept: Kept, page_file: Path = PAGE, readme: Path = README) -> None:
    """Write the page, and the figures of the README."""
    page_file.write_text(page(kept), "utf-8")
    text = readme.read_text("utf-8")
    if BEGIN in text:
        readme.write_text(with_short(text, kept), "utf-8")


# --- rows ------------------------------------------------------------------------------------------------------------


def _table(kept: Kept, rows: Callable[[Iterable[Figure]], Iterator[str]], head: str) -> Iterator[str]:
    yield head
    yield "|---|---:|---|---|"
    for bench, run in kept.runs.items():
        found = list(rows(run.figures))
        if found:
            yield f"| **{bench}** | | | |"
            yield from found


def _ratio_rows(figures: Iterable[Figure]) -> Iterator[str]:
    for one in figures:
        if one.is_ratio:
            yield f"| {one.name} | {shown(one.value)} | {one.of} | {_target(one)} |"


def _plain_rows(figures: Iterable[Figure]) -> Iterator[str]:
    for one in figures:
        if not one.is_ratio:
            yield f"| {one.name} | {shown(one.value)} | {one.unit} | {_target(one)} |"


def _target(one: Figure) -> str:
    return one.aim if one.met is not False else f"{one.aim}: missed"


def _headlines(bench: str, run: Run, keys: Iterable[tuple[str, str]]) -> Iterator[str]:
    found = {one.key: one for one in run.figures}
    repeat = f"`make bench ARGS={bench}`"
    for name, of in keys:
        if one := found.get((name, of)):
            yield f"| {name} | {shown(one.value)} | {of} | {_target(one)} | {run.circumstances.commit} | {repeat} |"
        else:
            yield f"| {name} | not measured | {of} | | | {repeat} |"


def _missed(kept: Kept) -> str:
    missed = [one for run in kept.runs.values() for one in run.figures if one.met is False]
    lines = [f"{one.name}: {shown(one.value)} {_measure(one)} ({one.aim})" for one in missed]
    return f"Targets that are missed, of all figures: {'; '.join(lines) or 'none'}."


def _runs(kept: Kept) -> Iterator[str]:
    yield "| benchmark | date | commit | machine | load | against and on |"
    yield "|---|---|---|---|---:|---|"
    for name, run in kept.runs.items():
        where = run.circumstances
        peers = ", ".join(f"{peer} {version}" for peer, version in where.peers.items())
        yield f"| {name} | {where.date} | {where.commit} | {_machine(where)} | {where.load:g} | {peers} |"


def _machine(where: Circumstances) -> str:
    return f"{where.machine}, {where.cores} cores, {where.python}"


def _measure(one: Figure) -> str:
    return f"times {one.of}" if one.is_ratio else one.unit
