"""`stateward create` and `stateward delete`."""

from collections.abc import Collection, Sequence
from typing import Annotated, Any

import msgspec
import typer

from stateward.cli.commands.kind_options import SpecFields, complete_kinds
from stateward.cli.commands.object_files import ObjectDocument, read_documents
from stateward.client.action_requests import (
    CARRY_ON,
    RequestOutcome,
    accepted_outcome,
    finish_requests,
    request_body,
)
from stateward.client.arguments import ObjectRef, parse_pairs, parse_ref, parse_values, read_source
from stateward.client.confirmation import confirm_action
from stateward.client.errors import ApiError
from stateward.client.field_options import parse_fields
from stateward.client.session import Session, requests_action
from stateward.client.shared_options import Args, Facts, Force, Labels, Object
from stateward.errors import BadInput, StatewardError
from stateward.schemas.objects import ObjectView, Possible

Kind = Annotated[
    str | None,
    typer.Argument(metavar="KIND", help="A kind, such as mci.vm (or vm, if clear).", autocompletion=complete_kinds),
]
Id = Annotated[str | None, typer.Argument(metavar="ID", help="The new object's id, unless given as KIND/ID.")]
Spec = Annotated[str | None, typer.Option("--spec", metavar="FILE", help="Its spec, a JSON file; - is standard input.")]
File = Annotated[
    str | None,
    typer.Option("--file", "-f", metavar="FILE", help="Objects in YAML or JSON: kind, id, spec, ...; - is stdin."),
]
Parent = Annotated[str | None, typer.Option("--parent", metavar="OBJECT", help="The object that it is a part of.")]
By = Annotated[str | None, typer.Option("--action", help="The action that creates it, if the kind has several.")]

GONE = "(gone)"


class NotClear(StatewardError):
    """No single action removes an object in its state; `choices` are the actions that could."""

    object: str
    state: str
    choices: list[str]

    def __str__(self) -> str:
        if not self.choices:
            return f"no action removes {self.object} while it is {self.state}"
        return f"several actions could remove {self.object}: {'; '.join(self.choices)}. Choose one with: stateward do"


@requests_action
def create(
    session: Session,
    kind: Kind = None,
    id_: Id = None,
    file: File = None,
    spec: Spec = None,
    set_: SpecFields = None,
    label: Labels = None,
    parent: Parent = None,
    action: By = None,
    fact: Facts = None,
    arg: Args = None,
) -> None:
    """Create an object, or all objects of a file.

    `stateward kinds KIND` lists the fields that --set takes.

      stateward create ovc.account acme --set name=acme --label name=acme --wait
      stateward create -f objects.yaml
    """
    if file is not None:
        if any((kind, id_, spec, set_, label, parent, action, fact, arg)):
            raise BadInput("--file", file, "given alone: the file says everything about its objects")
        finish_requests(session, [create_one(session, document) for document in read_documents(session, [file])])
        return
    if kind is None:
        raise BadInput("kind", None, "given: KIND ID, KIND/ID, or --file FILE")
    fields = {
        "labels": parse_pairs("label", label or []),
        "parent": None if parent is None else parse_ref(parent).id,
        "action": action,
    }
    named = parse_ref(kind) if id_ is None else ObjectRef(id_, kind)
    if named.kind is None:
        raise BadInput("id", kind, "followed by an id: KIND ID, or KIND/ID")
    full_kind = session.kind(named.kind)
    former = None if spec is None else read_spec(spec)
    if set_ and former is not None and not isinstance(former, dict):
        raise BadInput("--spec", spec, "an object, if --set gives more of its fields")
    fields["spec"] = former if not set_ else parse_fields(set_, session.kinds[full_kind].spec, former)
    body = {name: value for name, value in fields.items() if value}
    body |= {
        "kind": full_kind,
        "id": named.id,
        **request_body(False, fact or [], parse_values("arg", arg or [])),
    }
    finish_requests(session, [accepted_outcome(session.client.create(session.ns, body))])


def create_one(session: Session, document: ObjectDocument) -> RequestOutcome:
    """Create one of several objects; a refusal does not keep the others from it."""
    if document.namespace != session.ns:
        raise BadInput(f"{document.place('namespace')}: namespace", document.namespace, f"{session.ns}, or left out")
    try:
        return accepted_outcome(session.client.create(session.ns, document.body))
    except ApiError as problem:
        if problem.status not in (*CARRY_ON, 400, 422):
            raise
        return RequestOutcome(document.id, problem=problem.facts())


@requests_action
def delete(
    session: Session,
    object: Object,  # noqa: A002 - the glossary's word
    force: Force = False,
    fact: Facts = None,
    arg: Args = None,
) -> None:
    """Remove an object, by the action of its kind that does so.

    If several actions could, they are listed, and nothing is done.

      stateward delete vm/web-1 --wait
    """
    view = session.find(parse_ref(object))
    body = request_body(force, fact or [], parse_values("arg", arg or []))
    action = find_removal(session, view, session.ns, body.get("facts", []))
    confirm_action(session, action, [view.id], body)
    accepted = accepted_outcome(session.client.act(session.ns, view.id, action, body))
    finish_requests(session, [accepted])


def find_removal(session: Session, view: ObjectView, ns: str, facts: Sequence[str] = ()) -> str:
    """Return the action that removes an object in its present state."""
    allowed = session.client.allowed(ns, view.id)
    states = session.kinds[view.kind].states if view.kind in session.kinds else []
    ends = {state.state for state in states if state.state_class == "final"} | {GONE}
    return find_removing_action(view.id, allowed.state, allowed.actions, ends, facts)


def find_removing_action(
    object: str,  # noqa: A002
    state: str,
    actions: Sequence[Possible],
    ends: Collection[str],
    facts: Sequence[str],
) -> str:
    """Return the action that removes an object: `delete` if there is one, else the only one that ends it."""
    if any(action.event == "delete" for action in actions):
        return "delete"
    ending = [action for action in actions if action.end in ends]
    possible = {action.event for action in ending if set(action.needs) <= set(facts)}
    if len(possible) == 1:
        return possible.pop()
    raise NotClear(object, state, [_choice(action) for action in ending if not possible or action.event in possible])


def _choice(action: Possible) -> str:
    needs = f" (needs {', '.join(action.needs)})" if action.needs else ""
    return f"{action.event}{needs}, to {action.end}"


def read_spec(file: str) -> Any:  # noqa: ANN401 - whatever JSON can say
    """Read a spec from a file, or from standard input."""
    try:
        return msgspec.json.decode(read_source("--spec", file))
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput("--spec", file, f"JSON: {error}") from error
