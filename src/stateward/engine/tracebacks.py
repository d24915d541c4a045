"""Tracebacks of handlers: written for the log and for administrators, and stored with the failed operation.

A failed operation has no result, so its traceback is stored in that column: no statement more, and no format that older
programs do not know. Hooks never see it. Every way out of the server takes it out of the result (`split_result`), and
shows it to administrators only.
"""

import traceback

import msgspec

from stateward.engine.stored_texts import TRACEBACK, sanitize_text
from stateward.store.records import Operation

LONGEST_TRACEBACK = 8_000
"""How many characters of a traceback are kept: its end, which has the error and the frames nearest to it."""


def format_traceback(error: BaseException, written_in: str) -> str:
    """Return an error with its frames, from the handler on; `written_in` is the file of the code that called it."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and frames.tb_frame.f_code.co_filename == written_in:
        frames = frames.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, frames))
    except Exception:  # the text of an error is made by the handler's own code
        text = f"{type(error).__name__}, whose text cannot be made"
    text = sanitize_text(text.rstrip())
    return text if len(text) <= LONGEST_TRACEBACK else f"...\n{text[-LONGEST_TRACEBACK:]}"


def split_result(operation: Operation) -> tuple[str | None, str | None]:
    """Return the result of an operation as JSON text, and the traceback of its handler as plain text."""
    if operation.result is None or not operation.result.startswith(_START):
        return operation.result, None
    return None, msgspec.json.decode(operation.result)[TRACEBACK]


_START = f'{{"{TRACEBACK}":"'
