"""`stateward do` and `stateward plan`: request actions, or see what they would lead to."""

from typing import Annotated

import msgspec
import typer
from rich.text import Text

from stateward.cli.commands.kind_options import Action
from stateward.client.action_requests import finish_requests, request_body, request_each, request_group
from stateward.client.arguments import parse_ref, parse_selector, parse_values
from stateward.client.errors import api_error_of
from stateward.client.formatting import error_text, filled_table
from stateward.client.output import NO
from stateward.client.session import Session, on_server, requests_action
from stateward.client.shared_options import Args, Facts, Force, Objects
from stateward.errors import BadInput
from stateward.schemas.problems import Problem

Chosen = Annotated[
    list[str] | None,
    typer.Option("--selector", metavar="NAME=VALUE,...", help="All that fit: kind=, state=, label=k=v, parent=, q=."),
]


@requests_action
def do(
    session: Session,
    action: Action,
    objects: Objects = None,
    chosen: Chosen = None,
    force: Force = False,
    fact: Facts = None,
    arg: Args = None,
) -> None:
    """Ask for an action on objects that are named, or on all that a selector chooses."""
    if bool(objects) == bool(chosen):
        raise BadInput("object", None, "either named, or chosen with --selector")
    body = request_body(force, fact or [], parse_values("arg", arg or []))
    if chosen:
        outcomes = request_group(session, action, parse_selector(chosen), body)
    else:
        outcomes = request_each(session, action, [parse_ref(one) for one in objects or []], body)
    finish_requests(session, outcomes)


@on_server
def plan(
    session: Session,
    action: Action,
    objects: Objects = None,
    force: Force = False,
    fact: Facts = None,
    arg: Args = None,
) -> None:
    """Say whether an action would be accepted, and where it would lead, without doing anything."""
    named = [parse_ref(one) for one in objects or []]
    if not named:
        raise BadInput("object", None, "given: name at least one")
    for one in named:
        if one.kind is not None:
            session.find(one)
    body = request_body(force, fact or [], parse_values("arg", arg or []))
    answers = session.client.plan(session.ns, [{"object": one.id, "action": action, **body} for one in named])
    both = zip(named, answers, strict=True)
    rows = ((one.id, answer.would, answer.state or "", _why(answer.problem)) for one, answer in both)
    session.show(answers, lambda _: filled_table(("object", "would", "state", "why"), rows))
    if any(answer.would != "accept" for answer in answers):
        raise typer.Exit(NO)


def _why(problem: Problem | None) -> Text:
    told = None if problem is None else api_error_of(409, msgspec.to_builtins(problem))
    return error_text("" if problem is None else str(told or problem))
