"""A sample kind with types for its specs and arguments: records of a name server."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from stateward.engine import Job, Kind
from stateward.lifecycle import (
    BACK,
    GONE,
    MINUTE,
    NEW,
    STABLE,
    TRANSITIONAL,
    USER,
    State,
    action,
    declare,
    request,
    success,
    timeout,
)
from stateward.lifecycle.actors import AGENT, CLOCK

SECRET = {"writeOnly": True}


class Record(State):
    MAKING = "making", TRANSITIONAL
    SERVED = "served", STABLE
    CHANGING = "changing", TRANSITIONAL
    TOUCHING = "touching", TRANSITIONAL
    CHECKING = "checking", TRANSITIONAL
    REMOVING = "removing", TRANSITIONAL
    FAILED = "failed", STABLE


R = Record

ROWS = (
    #       from                 event     by     through     to        on error  within
    action( NEW,                 "create", USER,  R.MAKING,   R.SERVED, R.FAILED, MINUTE),
    action( R.SERVED | R.FAILED, "change", USER,  R.CHANGING, R.SERVED, R.FAILED, MINUTE),
    action( R.SERVED,            "touch",  USER,  R.TOUCHING, BACK,     R.FAILED, MINUTE),
    request(R.SERVED,            "check",  USER,  R.CHECKING, R.SERVED, R.FAILED, MINUTE),
    success(R.CHECKING,          "checked", AGENT,            R.SERVED),
    timeout(R.CHECKING,                               R.FAILED),
    action( R.SERVED | R.FAILED, "delete", USER,  R.REMOVING, GONE,     R.FAILED, MINUTE),
)  # fmt: skip

RECORD = declare("dns.record", Record, ROWS, USER | AGENT | CLOCK)


class RecordType(StrEnum):
    A = "A"
    TXT = "TXT"


class Login(Struct, frozen=True):
    """The account at the name server."""

    user: str
    password: Annotated[str, Meta(min_length=4, extra_json_schema=SECRET)]


class RecordSpec(Struct, frozen=True, kw_only=True):
    """What a record is to be."""

    address: Annotated[str, Meta(pattern=r"^[0-9.]+\Z", description="the IPv4 address")]
    type: RecordType = RecordType.A
    ttl: Annotated[int, Meta(ge=1, description="seconds")] = 300
    tags: list[str] = []
    login: Login | None = None

    def __post_init__(self) -> None:
        if self.address == "0.0.0.0" and self.login is not None:
            raise ValueError(f"an address that {self.login.user}/{self.login.password} may use")


class Change(Struct, frozen=True, kw_only=True):
    """The arguments of a change."""

    ttl: Annotated[int, Meta(ge=1)] = 60
    token: Annotated[str, Meta(extra_json_schema=SECRET)] | None = None


class Check(Struct, frozen=True):
    """The arguments of a check."""

    resolver: str


class RecordWork:
    """The work on records: it notes the specs and arguments that jobs have."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, object, object]] = []
        self.error: Exception | None = None
        self.result: object = None  # of a step, and of the job
        self.reads = True

    async def work(self, job: Job) -> object:
        if self.reads:
            self.jobs.append((job.action, job.spec, job.args))
        if self.error is not None:
            raise self.error
        if self.result is not None:

            async def step() -> object:
                return self.result

            return await job.once("login", step)
        return None

    def kind(self) -> Kind:
        kind = Kind(
            RECORD,
            spec=RecordSpec,
            spec_actions=("change",),
            args={"check": Check},
            columns=("spec.address", "labels.team"),
        )
        for event in ("create", "touch", "delete"):
            kind.handles(event)(self.work)
        kind.handles("change", args=Change)(self.work)
        return kind
