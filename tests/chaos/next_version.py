"""The next version of the program, as far as one can be had before it is written: this code, and one migration more.

It runs any program as that version would:

    python -m tests.chaos.next_version tests.chaos.worker_process STORE LEDGER NAME

What is tested with it is what a real upgrade leans on: versions are counted, migrated once, and kept apart. With
`STATEWARD_NEXT_LIFECYCLE`, cranes have changed as well: a state has another name, and one was given up.
"""

import os
import runpy
import sys

from msgspec.structs import replace

from stateward.lifecycle import (
    BACK,
    CLOCK,
    FINAL,
    FORCE,
    GONE,
    MINUTE,
    NEW,
    SECOND,
    STABLE,
    TRANSITIONAL,
    USER,
    State,
    action,
    declare,
    every,
    hidden,
    step,
)
from stateward.plugin import DomainPlugin, registry
from stateward.plugin.entry_points import FoundPart
from stateward.plugin.registry import InstalledDomain
from stateward.store import migrations
from stateward.store.migrations import Dialect, SchemaMigration
from tests.chaos import crane_kind

ADDED = """
ALTER TABLE workers ADD COLUMN ticket text NOT NULL DEFAULT '';
ALTER TABLE objects ADD COLUMN ticket text NOT NULL DEFAULT '';
ALTER TABLE operations ADD COLUMN ticket text NOT NULL DEFAULT '';
ALTER TABLE work ADD COLUMN ticket text NOT NULL DEFAULT '';
ALTER TABLE journal ADD COLUMN ticket text NOT NULL DEFAULT '';
CREATE INDEX operations_by_actor ON operations (ns, actor, id);
CREATE TABLE tickets (ns text NOT NULL, id text NOT NULL, PRIMARY KEY (ns, id));
INSERT INTO tickets SELECT ns, id FROM operations;
"""
"""What a migration does that those of the version before can live with: it adds, and fills in."""

LIFECYCLE = "STATEWARD_NEXT_LIFECYCLE"
MAPPED = ("chaos.crane:lifting=hoisting", "chaos.crane:broken=lost")

_former = migrations.migrations


def with_one_more(dialect: Dialect) -> tuple[SchemaMigration, ...]:
    """Return all migrations, and the one that the next version has."""
    known = _former(dialect)
    return (*known, SchemaMigration(known[-1].version + 1, "rehearsal", ADDED))


class NextCrane(State):
    RAISING = "raising", TRANSITIONAL
    IDLE = "idle", STABLE
    HOISTING = "hoisting", TRANSITIONAL
    DASHING = "dashing", TRANSITIONAL
    LOST = "lost", STABLE
    SCRAPPING = "scrapping", TRANSITIONAL
    SCRAPPED = "scrapped", FINAL


C = NextCrane

NEXT_CRANE = declare(
    crane_kind.CRANE.kind,
    NextCrane,
    (
        #      from               action    by            through      to          on error  within
        action(NEW,               "raise",  USER,         C.RAISING,   C.IDLE,     C.LOST,   5 * MINUTE),
        action(C.IDLE,            "lift",   USER | CLOCK, C.HOISTING,  BACK,       C.LOST,   5 * MINUTE),
        action(C.IDLE,            "dash",   USER,         C.DASHING,   C.IDLE,     BACK,     3 * SECOND),
        hidden(C.IDLE,            "oil",    USER,                                            5 * MINUTE),
        step(  C.LOST,            "mend",   USER,                      C.IDLE),
        action(every(NextCrane),  "scrap",  USER,         C.SCRAPPING, C.SCRAPPED, C.LOST,   5 * MINUTE, FORCE),
        step(  C.SCRAPPED,        "forget", USER,                      GONE),
    ),
    USER | CLOCK,
    unknown=C.LOST,
)  # fmt: skip


def become() -> None:
    """Be the next version from now on, in this process."""
    migrations.migrations = with_one_more
    if os.environ.get(LIFECYCLE):
        crane_kind.CRANE = NEXT_CRANE
        cranes = DomainPlugin(crane_kind.CRANE.kind.partition(".")[0], lifecycles=[NEXT_CRANE, crane_kind.YARD])
        found = registry.installed()
        known = replace(found, domains=(*found.domains, InstalledDomain(cranes, FoundPart("", __name__))))
        registry.installed = lambda: known


if __name__ == "__main__":
    become()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
