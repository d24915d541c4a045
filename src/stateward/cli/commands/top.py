"""`stateward top`: objects, lanes, workers and the newest journal entries, on one screen."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from stateward.cli.commands.lanes import lane_table
from stateward.client.errors import FORBIDDEN, none_if
from stateward.client.formatting import entry_text, print_json_line, state_text, utc_text
from stateward.client.journal_stream import newest_seq
from stateward.client.output import clean, out, plain_table, print_json
from stateward.client.progress import live_display
from stateward.client.session import Session, on_server
from stateward.schemas.deployment import LanesView, StuckView, WorkerView
from stateward.schemas.journal import LineView
from stateward.schemas.objects import NamespaceView

NEWEST = 10
"""Number of journal entries that are shown."""

LOOK_BACK = 300
"""Number of newest journal entries, of all namespaces, that are read at first."""

Once = Annotated[bool, typer.Option("--once", help="Show one frame and leave.")]
Every = Annotated[float, typer.Option("--every", min=0.2, max=3600, metavar="SECONDS", help="How often to look again.")]
Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces that the token opens.")]


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
    """Show states, lanes, workers and the newest lines of the journal, live, until Ctrl-C."""
    frames = read_frames(session, None if everywhere else session.ns)
    console = out()
    if once or (not console.is_terminal and not session.json):
        frame = next(frames)
        print_json(frame) if session.json else console.print(render_frame(session, frame))
        return
    if session.json:
        for frame in frames:
            print_json_line(frame)
            session.pause(every)
    with live_display(console, screen=True) as live:
        for frame in frames:
            live.update(render_frame(session, frame), refresh=True)
            session.pause(every)


def read_frames(session: Session, ns: str | None) -> Iterator[Frame]:
    """Yield the frames of a namespace (None: of all), without end; the journal is read on from frame to frame."""
    client, lines = session.client, deque[LineView](maxlen=NEWEST)
    after, more = max(newest_seq(session) - LOOK_BACK, 0), True
    while True:
        while more:
            page = client.journal(after, ns=ns)
            after, more = page.after, page.more
            lines.extend(page.lines)
        yield Frame(
            datetime.now(UTC),
            [one for one in client.namespaces() if ns in (None, one.ns)],
            none_if(FORBIDDEN, client.lanes),
            none_if(FORBIDDEN, client.workers),
            [one for one in client.stuck() if ns in (None, one.ns)],
            list(lines),
        )
        more = True


def render_frame(session: Session, frame: Frame) -> RenderableType:
    """Return a frame as tables and lines."""
    parts: list[RenderableType] = [_headline(session, frame), Rule(style="dim"), _states(session, frame)]
    if frame.lanes is not None and frame.lanes.lanes:
        parts += [Rule(style="dim"), lane_table(frame.lanes)]
    if frame.lines:
        parts += [Rule(style="dim"), *(entry_text(session.state_class, one) for one in frame.lines)]
    return Group(*parts)


def _headline(session: Session, frame: Frame) -> Text:
    counts = count_states(frame.namespaces)
    moving = sum(n for (kind, state), n in counts.items() if session.state_class(kind, state) == "transitional")
    words = f"{utc_text(frame.at)}  {counts.total()} objects, {moving} in transition"
    if frame.lanes is not None:
        words += f", {sum(one.running for one in frame.lanes.lanes)} operations running"
    if frame.workers is not None:
        words += f", {sum(one.alive for one in frame.workers)} workers"
    found = Text(words, style="bold")
    return found.append(f", {len(frame.stuck)} stuck", style="red") if frame.stuck else found


def count_states(namespaces: Iterable[NamespaceView]) -> Counter[tuple[str, str]]:
    """Return the number of objects by kind and state, over all namespaces."""
    found: Counter[tuple[str, str]] = Counter()
    for one in namespaces:
        for kind, states in one.counts.items():
            for state, count in states.items():
                found[kind, state] += count
    return found


def _states(session: Session, frame: Frame) -> Table:
    counts = count_states(frame.namespaces)
    table = plain_table("kind", "objects", "states")
    for kind in sorted({kind for kind, _ in counts}):
        states = {state: n for (of, state), n in sorted(counts.items()) if of == kind}
        cells = (state_text(session.state_class, kind, state).append(f" {n}") for state, n in states.items())
        table.add_row(Text(clean(kind)), str(sum(states.values())), Text("  ").join(cells))
    return table
