"""`stateward do` and `stateward plan`: request actions, or see what they would lead to."""

from functools import partial
from typing import Annotated, Any

import msgspec
import typer
from msgspec.structs import replace
from rich.text import Text

from stateward.cli.commands.kind_options import Action, ArgFields
from stateward.client.action_requests import finish_requests, request_body, request_each, request_group
from stateward.client.arguments import ObjectRef, parse_ref, parse_selector, parse_values
from stateward.client.confirmation import MAX_PREVIEWS, confirm_action, confirm_group, preview_lines
from stateward.client.errors import NOT_FOUND, api_error_of, none_if
from stateward.client.field_options import parse_fields
from stateward.client.formatting import error_text, filled_table
from stateward.client.output import NO, clean, results
from stateward.client.session import Session, on_server, requests_action
from stateward.client.shared_options import Args, Facts, Force, Objects
from stateward.errors import BadInput
from stateward.schemas.problems import Problem

Chosen = Annotated[
    list[str] | None,
    typer.Option(
        "--selector", metavar="NAME=VALUE,...", help="All objects that match: kind=, state=, label=k=v, parent=, q=."
    ),
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
    """Request an action on objects, or on all that match a selector.

    `stateward kinds KIND` lists the actions, and the arguments that --set takes.

      stateward do suspend vm/web-1 --wait
      stateward do suspend --selector kind=mci.vm,state=Running,label=region=eu
    """
    if bool(objects) == bool(chosen):
        raise BadInput("object", None, "either named, or chosen with --selector")
    args = parse_values("arg", arg or [])
    body = request_body(force, fact or [], args)
    if chosen:
        selector = parse_selector(chosen)
        kind = None if selector.kind is None else session.kind(selector.kind)
        body |= _args(session, kind, action, set_, args)
        confirm_group(session, action, selector, body)
        outcomes = request_group(session, action, selector, body)
    else:
        named = [parse_ref(text) for text in objects or []]
        bodies = [{**body, **_args_of(session, ref, action, set_, args)} for ref in named]
        confirm_action(session, action, [ref.id for ref in named], body)
        both = zip(named, bodies, strict=True)
        outcomes = [outcome for ref, own in both for outcome in request_each(session, action, [ref], own)]
    finish_requests(session, outcomes)


def _args_of(
    session: Session, named: ObjectRef, action: str, given: list[str] | None, args: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments for one object, by the schema of its kind."""
    if not given:
        return {}
    view = none_if(NOT_FOUND, lambda: session.client.object(session.ns, named.id))
    return _args(session, None if view is None else view.kind, action, given, args)


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
    chosen: Chosen = None,
    force: Force = False,
    fact: Facts = None,
    arg: Args = None,
    set_: ArgFields = None,
) -> None:
    """Tell whether an action would be accepted; nothing is changed.

    stateward plan terminate vm/web-1
    stateward plan suspend --selector kind=mci.vm,state=Running
    """
    if bool(objects) == bool(chosen):
        raise BadInput("object", None, "either named, or chosen with --selector")
    if chosen:
        _plan_group(session, action, chosen, request_body(force, fact or [], parse_values("arg", arg or [])), set_)
        return
    named = [parse_ref(text) for text in objects or []]
    for ref in named:
        if ref.kind is not None:
            session.find(ref)
    args = parse_values("arg", arg or [])
    body = {"action": action, **request_body(force, fact or [], args)}
    requests = [{"object": ref.id, **body, **_args_of(session, ref, action, set_, args)} for ref in named]
    answers = session.client.plan(session.ns, requests)
    both = zip(named, answers, strict=True)
    rows = ((ref.id, answer.would, answer.state or "", _why(answer.problem)) for ref, answer in both)
    session.show(answers, lambda _: filled_table(("object", "would", "state", "why"), rows))
    if not session.json:
        _show_previews(session, action, [request for request in requests if len(requests) <= MAX_PREVIEWS])
    if any(answer.would != "accept" for answer in answers):
        raise typer.Exit(NO)


def _plan_group(session: Session, action: str, chosen: list[str], body: dict[str, Any], set_: list[str] | None) -> None:
    """Tell what an action on all objects that a selector chooses would do."""
    selector = parse_selector(chosen)
    if selector.kind is not None:
        selector = replace(selector, kind=session.kind(selector.kind))
    body |= _args(session, selector.kind, action, set_, body.get("args", {}))
    view = session.client.preview_group(session.ns, action, {"selector": selector, **body})
    why = [] if view.problem is None else [str(_why(view.problem))]
    session.show(view, lambda _: Text(clean("\n".join([*preview_lines(view), *why]))))
    if not view.accepted:
        raise typer.Exit(NO)


def _show_previews(session: Session, action: str, requests: list[dict[str, Any]]) -> None:
    """Show what requests would do that touch many objects, or remove some."""
    for request in requests:
        body = {name: value for name, value in request.items() if name not in ("object", "action")}
        view = none_if(NOT_FOUND, partial(session.client.preview, session.ns, request["object"], action, body))
        if view is not None and view.accepted and (view.total > 1 or view.removes):
            lines = "\n".join(f"  {line}" for line in preview_lines(view))
            results().print(clean(f"{request['object']}:\n{lines}"), markup=False, highlight=False, soft_wrap=True)


def _why(problem: Problem | None) -> Text:
    told = None if problem is None else api_error_of(409, msgspec.to_builtins(problem))
    return error_text("" if problem is None else str(told or problem))
