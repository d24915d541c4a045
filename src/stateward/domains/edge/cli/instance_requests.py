"""Requests and output of the edge commands: names, waiting with live progress, tables."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.text import Text

from stateward.client.action_requests import RequestOutcome, print_outcomes, wait_for_outcomes, warn_of_waiting
from stateward.client.formatting import age_text, error_text, facts_table, filled_table, state_text
from stateward.client.http import idempotency_headers
from stateward.client.output import clean, err, print_json, results
from stateward.client.progress import follow_progress
from stateward.client.session import Session
from stateward.domains.edge.api.schemas import Conditions, EdgeAcceptedView, HeldView, View
from stateward.errors import BadInput


class Ignored(StrEnum):
    """What an administrator may want ignored."""

    AGENT = "agent"
    AGENT_ERRORS = "agent-errors"
    TRANSIENT = "transient"


Ignore = Annotated[
    list[Ignored] | None,
    typer.Option("--ignore", help="For administrators: do without the agent, its errors, or the present state."),
]


def conditions_text(found: Conditions) -> str:
    """Return what is true of something beside its state."""
    agent = "" if found.online is None else f"agent {found.version}" if found.online else "no agent"
    texts = [
        "missing" if found.missing else "",
        "being undone" if found.undoing else "",
        f"reserved by {found.reserved_by}" if found.reserved_by else "",
        agent,
        f"orphans: {', '.join(found.orphans)}" if found.orphans else "",
        *(_held(one) for one in found.held),
    ]
    return ", ".join(filter(None, texts))


def _held(one: HeldView) -> str:
    has = f", has {', '.join(one.things)}" if one.things else ""
    return f"another agent is held: installation {one.installation or 'without identity'}{has}"


def parts(text: str, number: int, form: str) -> list[str]:
    """Read a name such as munich/c1/web."""
    found = text.split("/")
    if len(found) != number or not all(found):
        raise BadInput("name", text, f"of the form {form}")
    return found


def path(session: Session, *names: str) -> str:
    """Return where something is."""
    return f"/edge/ns/{quote(session.ns, safe='')}/" + "/".join(quote(one, safe="") for one in names)


def ask(
    session: Session,
    method: str,
    where: str,
    body: Mapping[str, Any] | None,
    ignore: Sequence[Ignored] | None,
    wait: bool,
    timeout: float | None,
) -> None:
    """Ask for something, wait for its end if that is wanted, and print what became of it."""
    params = {"ignore": [one.value for one in ignore]} if ignore else {}
    headers = idempotency_headers()
    answer = session.client.http.call(EdgeAcceptedView, method, where, params=params, body=body, headers=headers)
    if method == "DELETE" and answer.object.conditions.orphans:
        left = clean(", ".join(answer.object.conditions.orphans))
        err().print(Text(f"Left at the cloudlet, where nobody looks after them: {left}", style="yellow"))
    operation = None if answer.operation is None else session.client.operation(session.ns, answer.operation.id)
    outcome = RequestOutcome(answer.object.id, answer.object, operation)
    warn_of_waiting(session, [outcome])
    print_outcomes(session, [_told(session, outcome, timeout) if wait else outcome])


def retell(session: Session, operation: str, timeout: float | None) -> None:
    """Say again what an operation has said from its beginning, and what it says until its end."""
    found = session.client.operation(session.ns, operation)
    print_outcomes(session, [_told(session, RequestOutcome(found.object, None, found), timeout)])


def _told(session: Session, outcome: RequestOutcome, timeout: float | None) -> RequestOutcome:
    """Wait for the end of an operation, with a line for whatever it says."""
    if outcome.operation is not None and session.client.has_worker and not session.json:
        follow_progress(session.client, outcome.operation, _say, timeout)
    return wait_for_outcomes(session, [outcome], timeout)[0]


def _say(words: str, done: int | None, total: int | None) -> None:
    count = f" ({done} of {total})" if done is not None and total is not None else ""
    err().print(Text(f"  {clean(words)}{count}", style="dim"))


def show_all(session: Session, where: str, cloudlet: str | None = None) -> None:
    """Show a listing."""
    params = {"cloudlet": cloudlet} if cloudlet else {}
    found = session.client.http.call(list[View], "GET", where, params=params)
    if session.json:
        print_json(found)
    elif found:
        rows = (
            (one.id, _state(session, one), age_text(one.since), conditions_text(one.conditions), error_text(one.error))
            for one in found
        )
        results().print(filled_table(("id", "state", "since", "conditions", "error"), rows))
    else:
        results().print(f"None in namespace {session.ns}.", markup=False)


def _row(session: Session, one: View) -> tuple[str | Text, ...]:
    return one.id, _state(session, one), age_text(one.since), conditions_text(one.conditions), error_text(one.error)


def show_one(session: Session, where: str) -> None:
    """Show one thing."""
    found = session.client.http.call(View, "GET", where)
    if session.json:
        print_json(found)
        return
    spec = found.spec if isinstance(found.spec, dict) else {}
    facts: list[tuple[str, str | Text]] = [
        ("id", found.id),
        ("state", _state(session, found)),
        ("since", age_text(found.since)),
        ("conditions", conditions_text(found.conditions)),
        ("operation", found.op or ""),
        ("error", error_text(found.error)),
        *((str(name), str(value)) for name, value in spec.items()),
    ]
    results().print(facts_table(facts))


def _state(session: Session, one: View) -> Text:
    return state_text(session.state_class, one.kind, one.state)
