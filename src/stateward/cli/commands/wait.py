"""`stateward operation`, `wait`, `cancel` and `signal`: show operations, wait for, cancel or signal them."""

from typing import Annotated

import typer

from stateward.client.action_requests import RequestOutcome, print_outcomes, wait_for_outcomes
from stateward.client.arguments import parse_json, parse_ref
from stateward.client.errors import NOT_FOUND, none_if
from stateward.client.formatting import operation_details
from stateward.client.session import Session, Timeout, on_server

What = Annotated[str, typer.Argument(metavar="OPERATION|OBJECT", help="An operation's id, or an object.")]
Operation = Annotated[str, typer.Argument(metavar="OPERATION", help="An operation's id.")]

Name = Annotated[str, typer.Argument(metavar="NAME", help="The signal that the operation waits for.")]
Payload = Annotated[
    str | None, typer.Option(metavar="JSON", help="What the operation gets with the signal, such as 'true'.")
]

NEWEST = 100
"""Number of an object's newest operations among which those that have not ended are searched."""


@on_server
def wait(session: Session, what: What, timeout: Timeout = None) -> None:
    """Wait until an operation, or all work on an object, has ended.

    stateward wait vm/web-1 --timeout 60
    """
    named = None if "/" in what else none_if(NOT_FOUND, lambda: session.client.operation(session.ns, what))
    outcomes = _under_way(session, what) if named is None else [RequestOutcome(named.object, None, named)]
    session.timeout = timeout
    if any(outcome.operation is not None and not outcome.operation.has_ended for outcome in outcomes):
        session.require_worker()
    print_outcomes(session, wait_for_outcomes(session, outcomes, timeout))


def _under_way(session: Session, what: str) -> list[RequestOutcome]:
    view = session.find(parse_ref(what))
    newest = session.client.operations(session.ns, NEWEST, object=view.id)
    return [RequestOutcome(view.id, view, operation) for operation in newest if not operation.has_ended] or [
        RequestOutcome(view.id, view)
    ]


@on_server
def operation(session: Session, operation: Operation) -> None:
    """Show an operation: its steps, and its result or error.

    Administrators also see the traceback of the handler.
    """
    session.show(session.client.operation(session.ns, operation), operation_details)


@on_server
def cancel(session: Session, operation: Operation) -> None:
    """Cancel an operation.

    One that waits ends at once. One that runs is asked to stop, and ends with its real outcome.
    """
    view = session.client.cancel(session.ns, operation)
    session.show(view, operation_details)


@on_server
def signal(session: Session, operation: Operation, name: Name, payload: Payload = None) -> None:
    """Send a signal to an operation that waits for one.

    The signal is kept until the operation waits for it.

      stateward signal OPERATION approved --payload true
    """
    value = None if payload is None else parse_json("--payload", payload)
    view = session.client.signal(session.ns, operation, name, value)
    session.show(view, operation_details)
