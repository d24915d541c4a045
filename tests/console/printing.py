"""A foreign domain for the console: printers and their jobs, whose specs use every form of a schema."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct

from stateward.engine import Job, Kind
from stateward.lifecycle import BACK, GONE, MINUTE, NEW, STABLE, TRANSITIONAL, USER, State, action, declare
from stateward.plugin import DomainPlugin

SECRET = {"writeOnly": True}


class Printer(State):
    SETTING_UP = "setting up", TRANSITIONAL
    READY = "ready", STABLE
    CHANGING = "changing", TRANSITIONAL
    CLEANING = "cleaning", TRANSITIONAL
    REMOVING = "removing", TRANSITIONAL
    BROKEN = "broken", STABLE


P = Printer
PRINTER_ROWS = (
    #      from                event      by    through       to       on error  within
    action(NEW,                "set up",  USER, P.SETTING_UP, P.READY, P.BROKEN, MINUTE),
    action(P.READY | P.BROKEN, "resize",  USER, P.CHANGING,   P.READY, P.BROKEN, MINUTE),
    action(P.READY,            "clean",   USER, P.CLEANING,   BACK,    BACK,     MINUTE),
    action(P.READY | P.BROKEN, "remove",  USER, P.REMOVING,   GONE,    P.BROKEN, MINUTE),
)  # fmt: skip


class Sheet(State):
    PRINTING = "printing", TRANSITIONAL
    PRINTED = "printed", STABLE


SHEET_ROWS = (action(NEW, "print", USER, Sheet.PRINTING, Sheet.PRINTED, Sheet.PRINTED, MINUTE),)


class Paper(StrEnum):
    A4 = "A4"
    A3 = "A3"
    LETTER = "letter"


class Login(Struct, forbid_unknown_fields=True):
    """The account that prints."""

    user: Annotated[str, Meta(min_length=1, pattern=r"^[a-z]+\Z")]  # browsers do not know \Z
    password: Annotated[str, Meta(min_length=4, extra_json_schema=SECRET)]


class Tray(Struct):
    paper: Paper
    sheets: Annotated[int, Meta(ge=0, le=500)] = 250


class Weekly(Struct, tag="weekly"):
    day: Annotated[int, Meta(ge=1, le=7, description="1 is Monday")]


class AfterPages(Struct, tag="after pages"):
    pages: Annotated[int, Meta(ge=100)] = 1_000


class Card(Struct):
    holder: str
    data: Any = None


class PrinterSpec(Struct, kw_only=True):
    """What a printer is to be."""

    address: Annotated[str, Meta(title="network address", pattern=r"^[a-z0-9.-]+$", description="a host name")]
    port: Annotated[int, Meta(ge=1, le=65_535)] = 9_100
    paper: Paper = Paper.A4
    duplex: bool = True
    margin: Annotated[float, Meta(gt=0, lt=50, description="millimetres")] = 5.5
    login: Login | None = None
    trays: Annotated[list[Tray], Meta(max_length=3)] = []
    cleaning: Weekly | AfterPages | None = None
    options: dict[str, str] = {}
    bought: Annotated[datetime, Meta(tz=True)] | None = None
    notes: Annotated[str, Meta(max_length=2_000)] = ""
    extra: Any = None
    pins: Annotated[list[str], Meta(extra_json_schema=SECRET)] | None = None
    keys: Annotated[dict[str, str], Meta(extra_json_schema=SECRET)] = {}
    card: Annotated[Card | None, Meta(extra_json_schema=SECRET)] = None

    def __post_init__(self) -> None:
        if self.address == "taken":
            raise ValueError("an address that no other printer has")


class Resize(Struct, kw_only=True):
    """Other paper for a printer."""

    paper: Paper
    sheets: Annotated[int, Meta(ge=1, le=500, description="sheets to put in")]
    code: Annotated[str, Meta(extra_json_schema=SECRET)] | None = None


class SheetSpec(Struct):
    pages: Annotated[int, Meta(ge=1)]


printer = Kind(
    declare("printing.printer", Printer, PRINTER_ROWS, USER, about="A printer in an office."),
    spec=PrinterSpec,
    spec_actions=("resize",),
    columns=("spec.address", "spec.paper", "labels.floor", "seen.sheets"),
)
sheet = Kind(declare("printing.sheet", Sheet, SHEET_ROWS, USER), spec=SheetSpec)


@printer.handles("set up")
@printer.handles("clean")
@printer.handles("remove")
async def _work(job: Job) -> None:
    await job.progress(f"{job.action} {job.object}")
    if (job.action, job.object) == ("clean", "jammed"):
        raise LookupError("no such tray")


@printer.handles("resize", args=Resize)
async def _resize(job: Job) -> None:
    await job.progress("other paper")


@sheet.handles("print")
async def _print(job: Job) -> None:
    await job.progress("printed")


domain = DomainPlugin("printing", [printer, sheet], about="printers and what they print")
