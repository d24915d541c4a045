"""Confirmation of large and final actions at a terminal: the preview as text, and a question.

Without a terminal nothing is asked, so that scripts go on; `--yes` answers the question beforehand.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import typer
from msgspec.structs import replace

from stateward.client.errors import NOT_FOUND, none_if
from stateward.client.output import NO, clean, err
from stateward.errors import count_text
from stateward.schemas.preview import PreviewView

if TYPE_CHECKING:
    from stateward.client.arguments import ObjectSelector
    from stateward.client.session import Session

MAX_PREVIEWS = 20
"""How many named objects are previewed one by one; more are previewed as a group."""

MAX_PLACES = 5


def confirm_action(session: "Session", action: str, ids: Sequence[str], body: Mapping[str, Any]) -> None:
    """Ask before an action on named objects that touches many objects, or removes some; ends the command on a no."""
    if not asks(session):
        return
    if len(ids) > MAX_PREVIEWS:
        asked = [(", ".join(ids), session.client.preview_group(session.ns, action, {"objects": ids, **body}))]
    else:  # an object that does not exist is told by the request itself
        previews = [(id_, none_if(NOT_FOUND, partial(_preview, session, action, id_, body))) for id_ in ids]
        asked = [(id_, view) for id_, view in previews if view is not None]
    _confirm(session, action, asked)


def _preview(session: "Session", action: str, id_: str, body: Mapping[str, Any]) -> PreviewView:
    return session.client.preview(session.ns, id_, action, body)


def confirm_group(session: "Session", action: str, chosen: "ObjectSelector", body: Mapping[str, Any]) -> None:
    """Ask before an action on all objects that a selector chooses."""
    if asks(session):
        if chosen.kind is not None:
            chosen = replace(chosen, kind=session.kind(chosen.kind))
        _confirm(
            session, action, [("", session.client.preview_group(session.ns, action, {"selector": chosen, **body}))]
        )


def asks(session: "Session") -> bool:
    """Return whether a command asks: there is a person at a terminal who did not say yes."""
    return not (session.yes or session.json) and sys.stdin.isatty() and sys.stderr.isatty()


def _confirm(session: "Session", action: str, asked: Sequence[tuple[str, PreviewView]]) -> None:
    accepted = [(id_, view) for id_, view in asked if view.accepted]
    if sum(view.total for _, view in accepted) <= 1 and not any(view.removes for _, view in accepted):
        return
    for line in (line for _, view in accepted for line in preview_lines(view)):
        err().print(clean(f"  {line}"), markup=False, highlight=False, soft_wrap=True)
    _ask(question(session.ns, action, accepted))


def confirm_removal(session: "Session", wanted: str) -> None:
    """Ask before a removal of which the server has no preview."""
    if asks(session):
        _ask(wanted)


def _ask(wanted: str) -> None:
    if not typer.confirm(clean(wanted), err=True):
        err().print("Nothing was changed.")
        raise typer.Exit(NO)


def question(ns: str, action: str, asked: Sequence[tuple[str, PreviewView]]) -> str:
    """Return the question before an action: what is done to how many objects of what."""
    total = sum(view.total for _, view in asked)
    kinds = {target.kind for _, view in asked for target in view.targets}
    ids = [f"{ns}/{id_}" for id_, _ in asked if id_]
    what = count_text(total, _noun(kinds))
    if len(asked) == 1 and ids and total > 1:
        return f"{action.capitalize()} {what} of {ids[0]}?"
    if ids and len(ids) <= MAX_PREVIEWS:
        return f"{action.capitalize()} {what if total > 1 else _noun(kinds)}: {', '.join(ids)}?"
    return f"{action.capitalize()} {what} in {ns}?"


def _noun(kinds: set[str]) -> str:
    """Return the word for objects of a kind: `VM` for `mci.vm`, `cluster` for `k8s.cluster`."""
    if len(kinds) != 1:
        return "object"
    name = next(iter(kinds)).rpartition(".")[2]
    return name.upper() if len(name) <= len("vm") + 1 else name


def preview_lines(view: PreviewView) -> Iterator[str]:
    """Yield the lines of a preview: what would change, where, what refuses, and whether it can be undone."""
    for target in view.targets:
        yield f"{target.count:,} {target.kind}: {target.state} to {target.desired}"
    if len(view.places) > 1:
        places = [f"{place.place} {place.count:,}" for place in view.places[:MAX_PLACES]]
        more = sum(place.count for place in view.places[MAX_PLACES:])
        yield f"in {', '.join([*places, *([f'other {more:,}'] if more else [])])}"
    for refusal in view.refused:
        yield f"{refusal.count:,} {'refuses' if refusal.count == 1 else 'refuse'}: {refusal.detail}"
    if view.protected:
        named = ", ".join(view.protected_examples)
        yield f"{view.protected:,} {'is' if view.protected == 1 else 'are'} protected: {named}"
    yield from view.effects
    if view.removes:
        yield "this cannot be undone"
    elif view.undo is not None:
        yield f"undo with {view.undo!r}"
