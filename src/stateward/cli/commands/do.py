"""`stateward do` and `stateward plan`: request actions, or see what they would lead to."""

from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from stateward.cli.commands.kind_options import Action, ArgFields
from stateward.client.action_requests import finish_requests, request_body, request_each, request_group
from stateward.client.arguments import ObjectRef, parse_ref, parse_selector, parse_values
from stateward.client.errors import NOT_FOUND, api_error_of, none_if
from stateward.client.field_options import parse_fields
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
    set_: ArgFields = None,
) -> None:
    """Ask for an action on objects that are named, or on all that a selector chooses.

    `--set size=4` gives an argument, converted as the kind wants it; `stateward kinds KIND` lists them.
    """
    if bool(objects) == bool(chosen):
        raise BadInput("object", None, "either named, or chosen with --selector")
    args = parse_values("arg", arg or [])
    body = request_body(force, fact or [], args)
    if chosen:
        selector = parse_selector(chosen)
        kind = None if selector.kind is None else session.kind(selector.kind)
        outcomes = request_group(session, action, selector, {**body, **_args(session, kind, action, set_, args)})
    else:
        named = [parse_ref(one) for one in objects or []]
        bodies = [{**body, **_args_of(session, one, action, set_, args)} for one in named]
        both = zip(named, bodies, strict=True)
        outcomes = [outcome for one, own in both for outcome in request_each(session, action, [one], own)]
    finish_requests(session, outcomes)


def _args_of(
    session: Session, named: ObjectRef, action: str, given: list[str] | None, args: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments for one object, by the schema of its kind."""
    if not given:
        return {}
    found = none_if(NOT_FOUND, lambda: session.client.object(session.ns, named.id))
    return _args(session, None if found is None else found.kind, action, given, args)


def _args(
    session: Session, kind: str | None, action: str, given: list[str] | None, args: dict[str, Any]
) -> dict[str, Any]:
    if not given:
        return {}
    schemas = session.kinds[kind].args if kind in session.kinds else {}
    if schemas and action not in schemas and action in session.kinds[kind or ""].actions:
        raise BadInput("--set", given[0], f"left out: {action} of {kind} takes no arguments")
    return {"args": parse_fields(given, schemas.get(action), args)}


@on_server
def plan(
    session: Session,
    action: Action,
    objects: Objects = None,
    force: Force = False,
    fact: Facts = None,
    arg: Args = None,
    set_: ArgFields = None,
) -> None:
    """Say whether an action would be accepted, and where it would lead, without doing anything."""
    named = [parse_ref(one) for one in objects or []]
    if not named:
        raise BadInput("object", None, "given: name at least one")
    for one in named:
        if one.kind is not None:
            session.find(one)
    args = parse_values("arg", arg or [])
    body = {"action": action, **request_body(force, fact or [], args)}
    requests = [{"object": one.id, **body, **_args_of(session, one, action, set_, args)} for one in named]
    answers = session.client.plan(session.ns, requests)
    both = zip(named, answers, strict=True)
    rows = ((one.id, answer.would, answer.state or "", _why(answer.problem)) for one, answer in both)
    session.show(answers, lambda _: filled_table(("object", "would", "state", "why"), rows))
    if any(answer.would != "accept" for answer in answers):
        raise typer.Exit(NO)


def _why(problem: Problem | None) -> Text:
    told = None if problem is None else api_error_of(409, msgspec.to_builtins(problem))
    return error_text("" if problem is None else str(told or problem))
