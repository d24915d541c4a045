"""`stateward protect` and `stateward unprotect`: deletion protection of objects and namespaces."""

from typing import TYPE_CHECKING, Annotated

import typer

from stateward.client.arguments import parse_ref
from stateward.client.formatting import filled_table
from stateward.client.session import Session, on_server
from stateward.client.shared_options import Objects
from stateward.errors import BadInput

if TYPE_CHECKING:
    from stateward.schemas.objects import ObjectView

NamespaceFlag = Annotated[bool, typer.Option("--namespace-flag", help="The flag of the namespace, not of an object.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; a refusal repeats it.")]


@on_server
def protect(
    session: Session, objects: Objects = None, namespace_flag: NamespaceFlag = False, reason: Reason = ""
) -> None:
    """Protect objects or a namespace against deletion.

    The flag of an object is also that of what is below it. `--force` does not go over it.

    stateward protect box --reason "production"
    stateward protect --namespace-flag -n prod
    """
    _set(session, objects, namespace_flag, {"protected": True, "reason": reason})


@on_server
def unprotect(session: Session, objects: Objects = None, namespace_flag: NamespaceFlag = False) -> None:
    """Lift the deletion protection of objects or of a namespace."""
    _set(session, objects, namespace_flag, {"protected": False})


def _set(session: Session, objects: list[str] | None, namespace_flag: bool, body: dict[str, object]) -> None:
    if bool(objects) == namespace_flag:
        raise BadInput("object", None, "either named, or left out with --namespace-flag")
    if namespace_flag:
        session.require_namespace()
        flag = session.client.protect_namespace(session.ns, body)
        session.show(flag, lambda view: f"namespace {view.ns}: {_word(view.protected)}")
        return
    views = [session.find(parse_ref(text)) for text in objects or []]
    changed = [session.client.protect(session.ns, view.id, body) for view in views]
    session.show(changed, lambda all_: filled_table(("object", "kind", "protection"), map(_row, all_)))


def _row(view: "ObjectView") -> tuple[str, str, str]:
    return view.id, view.kind, _word(view.protected)


def _word(reason: str) -> str:
    return "not protected" if not reason else "protected" if reason == "yes" else f"protected: {reason}"
