"""`stateward edit`: change the spec and the labels of an object in an editor.

The object is written with the version that the editor has shown, so that a concurrent change is refused. Text that is
not accepted is kept in a file.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import mkstemp

from msgspec.structs import replace

from stateward.cli.commands.apply import carry_out
from stateward.cli.commands.object_files import read_document, read_marked, to_yaml
from stateward.cli.object_changes import DIGEST_LABEL, ObjectChange, Verb, decide_change, update_action
from stateward.client.action_requests import finish_requests
from stateward.client.arguments import parse_ref
from stateward.client.output import err
from stateward.client.session import Session, requests_action
from stateward.client.shared_options import Object
from stateward.errors import BadInput, StatewardError
from stateward.schemas.objects import ObjectView

HEAD = "# Change the spec and the labels; the version that you see here is replaced, or nothing is.\n"


@requests_action
def edit(session: Session, object: Object) -> None:  # noqa: A002 - the glossary's word
    """Change the spec and the labels of an object in an editor: $VISUAL, $EDITOR, or else vi.

    If the object changes meanwhile, nothing is written, and the text is kept in a file.
    """
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not named and not (sys.stdin.isatty() and sys.stdout.isatty()):
        instead = "`stateward apply -f FILE` and `stateward do ACTION OBJECT --set FIELD=VALUE` need neither"
        raise BadInput("EDITOR", None, f"given where there is no terminal; {instead}")
    editor = named or "vi"
    view = session.find(parse_ref(object))
    labels = {name: value for name, value in view.labels.items() if name != DIGEST_LABEL}
    before = HEAD + to_yaml(
        {"kind": view.kind, "name": view.id, "namespace": view.ns, "labels": labels, "spec": view.spec}
    )
    descriptor, name = mkstemp(prefix=f"stateward-{view.id.replace('/', '-')[:50]}-", suffix=".yaml")
    file = Path(name)
    os.close(descriptor)
    file.write_text(before)
    is_kept = False
    try:
        _run_editor(editor, file)
        if file.read_text() == before:
            err().print("Nothing was changed.", highlight=False)
            return
        change = _read_change(session, file, view)
        if change.verb is Verb.KEEP:
            err().print("Nothing was changed.", highlight=False)
            return
        outcome = carry_out(session, change)
        finish_requests(session, [] if outcome is None else [outcome])
    except (StatewardError, UnicodeDecodeError):
        is_kept = True
        err().print(f"The text is kept in {file}", style="yellow", highlight=False, soft_wrap=True, markup=False)
        raise
    finally:
        if not is_kept:
            file.unlink(missing_ok=True)


def _run_editor(command: str, file: Path) -> None:
    try:
        code = subprocess.run([*shlex.split(command), str(file)], check=False).returncode  # noqa: S603 - the user's own
    except (OSError, ValueError) as error:
        raise BadInput("EDITOR", command, f"a program that can be run ({error})") from error
    if code:
        raise BadInput("EDITOR", command, f"a program that ends with 0; it ended with {code}")


def _read_change(session: Session, file: Path, view: ObjectView) -> ObjectChange:
    """Return the change that the text asks for; it names the same object."""
    documents = [marked for marked in read_marked(file.read_bytes(), str(file)) if marked.value is not None]
    if len(documents) != 1:
        raise BadInput(str(file), None, "one document")
    document = read_document(session, documents[0], str(file))
    if (document.id, document.namespace) != (view.id, view.ns):
        raise BadInput(document.place("name"), f"{document.namespace}/{document.id}", f"{view.ns}/{view.id}, as before")
    if document.spec == view.spec:  # it may show masks of secrets, which are not to be written
        document = replace(document, spec=None)
    change = decide_change(document, view, session.kinds.get(view.kind))
    kept = {name: value for name, value in change.labels.items() if name == DIGEST_LABEL or name in document.labels}
    if document.spec is None:
        return ObjectChange(
            Verb.KEEP if kept == view.labels else Verb.LABEL, view.id, view.ns, document, view, labels=kept
        )
    action = update_action(session.kinds.get(view.kind))
    if action is None:
        raise BadInput(document.place("spec"), None, f"as it was: {view.kind} has no action that updates a spec")
    return ObjectChange(Verb.UPDATE, view.id, view.ns, document, view, action, kept)
