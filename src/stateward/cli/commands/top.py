"""`stateward top`: objects, lanes, workers and the newest journal entries, on one screen."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from stateward.cli.commands.lanes import lane_table
from stateward.client.errors import FORBIDDEN, NOT_FOUND, none_if
from stateward.client.formatting import entry_text, state_text, utc_text
from stateward.client.journal_stream import newest_seq
from stateward.client.output import clean, out, plain_table
from stateward.client.progress import live_display
from stateward.client.session import Session, on_server
from stateward.client.shared_options import Everywhere
from stateward.errors import count_text
from stateward.schemas.deployment import LanesView, StuckView, WorkerView
from stateward.schemas.journal import LineView
from stateward.schemas.objects import NamespaceView

NEWEST = 10
"""Number of journal entries that are shown."""

LOOK_BACK = 300
"""Number of newest journal entries, of all namespaces, that are read at first."""

Once = Annotated[bool, typer.Option("--once", help="Print one screen and end.")]
Every = Annotated[
    float, typer.Option("--every", min=0.2, max=3600, metavar="SECONDS", help="Seconds between two readings.")
]


class Frame(Struct, frozen=True):
    """The deployment at one moment; lanes and workers are None if the token does not open them."""

    at: datetime
    namespaces: list[NamespaceView]
    lanes: LanesView | None
    workers: list[WorkerView] | None
    stuck: list[StuckView]
    lines: list[LineView]


@on_server
def top(session: Session, once: Once = False, every: Every = 1.0, everywhere: Everywhere = False) -> None:
    """Show states, lanes, workers and the newest journal entries, live.

    stateward top -A
    stateward top --once
    """
    frames = read_frames(session, None if everywhere else session.ns)
    console = out()
    if once or (not console.is_terminal and not session.json):
        frame = next(frames)
        session.print_data(frame) if session.json else console.print(render_frame(session, frame))
        return
    if session.json:
        for frame in frames:
            session.print_data_line(frame)
            session.pause(every)
    with live_display(console, screen=True) as live:
        for frame in frames:
            live.update(render_frame(session, frame), refresh=True)
            session.pause(every)


def read_frames(session: Session, ns: str | None) -> Iterator[Frame]:
    """Yield the frames of a namespace (None: of all), without end; the journal is read on from frame to frame."""
    client, lines = session.client, deque[LineView](maxlen=NEWEST)
    # Each refusal is audited, so that what the token does not open is not asked for. An older server does not tell.
    me = none_if(NOT_FOUND, client.me)
    sees_lanes = me is None or "*" in me.namespaces
    sees_workers = sees_lanes and (me is None or me.role == "admin")
    after, more = max(newest_seq(session) - LOOK_BACK, 0), True
    while True:
        while more:
            page = client.journal(after, ns=ns)
            after, more = page.after, page.more
            lines.extend(page.lines)
        yield Frame(
            datetime.now(UTC),
            [namespace for namespace in client.namespaces() if ns in (None, namespace.ns)],
            none_if(FORBIDDEN, client.lanes) if sees_lanes else None,
            none_if(FORBIDDEN, client.workers) if sees_workers else None,
            [work for work in client.stuck() if ns in (None, work.ns)],
            list(lines),
        )
        more = True


def render_frame(session: Session, frame: Frame) -> RenderableType:
    """Return a frame as tables and lines."""
    counts = count_states(frame.namespaces)
    table = plain_table("kind", "objects", "states")
    for kind in sorted({kind for kind, _ in counts}):
        states = {state: n for (of, state), n in sorted(counts.items()) if of == kind}
        cells = (state_text(session.state_class, kind, state).append(f" {n}") for state, n in states.items())
        table.add_row(Text(clean(kind)), str(sum(states.values())), Text("  ").join(cells))
    parts: list[RenderableType] = [_headline(session, frame), Rule(style="dim"), table]
    if frame.lanes is not None and frame.lanes.lanes:
        parts += [Rule(style="dim"), lane_table(frame.lanes)]
    if frame.lines:
        parts += [Rule(style="dim"), *(entry_text(session.state_class, line) for line in frame.lines)]
    return Group(*parts)


def _headline(session: Session, frame: Frame) -> Text:
    counts = count_states(frame.namespaces)
    moving = sum(n for (kind, state), n in counts.items() if session.state_class(kind, state) == "transitional")
    words = f"{utc_text(frame.at)}  {count_text(counts.total(), 'object')}, {moving:,} in transition"
    if frame.lanes is not None:
        words += f", {count_text(sum(lane.running for lane in frame.lanes.lanes), 'operation')} running"
    if frame.workers is not None:
        words += f", {count_text(sum(worker.alive for worker in frame.workers), 'worker')}"
    headline = Text(words, style="bold")
    return headline.append(f", {len(frame.stuck)} stuck", style="red") if frame.stuck else headline


def count_states(namespaces: Iterable[NamespaceView]) -> Counter[tuple[str, str]]:
    """Return the number of objects by kind and state, over all namespaces."""
    counts: Counter[tuple[str, str]] = Counter()
    for namespace in namespaces:
        for kind, states in namespace.counts.items():
            for state, count in states.items():
                counts[kind, state] += count
    return counts
