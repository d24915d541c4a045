from math import inf

import pytest
from rich.console import Console

from stateward.domains.mci.cli.tumblebug_calls import Mci, OrphanListing, Vm, VmLocation
from stateward.domains.mci.cli.views import FEW, mci_view, orphan_view, state_of, status_text
from stateward.domains.mci.shared_schemas import OrphanMachine


def printed(view: object) -> str:
    console = Console(width=200, record=True, file=None, force_terminal=False)
    with console.capture() as said:
        console.print(view)
    return said.get()


@pytest.mark.parametrize(
    ("status", "state", "style"),
    [
        ("Running:3 (R:3/3)", "Running", "green"),
        ("Partial-Failed:2 (R:1/3)", "Failed", "red"),
        ("Suspending", "Suspending", "yellow"),
        ("Terminated:1 (R:0/1)", "Terminated", "blue"),
        ("Empty", "Empty", "green"),
    ],
)
def test_a_status_has_the_colour_of_its_state(status: str, state: str, style: str) -> None:
    assert state_of(status) == state
    assert status_text(status).style == style


def test_a_few_vms_are_shown_one_by_one_and_many_by_subgroup() -> None:
    vms = [Vm(f"web-{n}", "Running", "web", location=VmLocation("Seoul")) for n in range(FEW + 1)]
    mci = Mci("m1", f"Running:{len(vms)} (R:{len(vms)}/{len(vms)})", vm=vms)
    assert "web-1" not in printed(mci_view(mci))
    assert f"Running {len(vms)}" in printed(mci_view(mci))
    assert "web-1" in printed(mci_view(mci, inf))


def test_what_somebody_else_named_moves_no_cursor() -> None:
    assert "\x1b" not in printed(mci_view(Mci("m\x1b[2J", "Running", vm=[Vm("v", "Failed", system_message="\x1b[1A")])))


def test_where_nobody_can_say_is_told_beside_what_was_found() -> None:
    said = printed(
        orphan_view(OrphanListing([OrphanMachine("local", "k1", "p-1", "running", "")], {"aws-x": "no answer"}))
    )
    assert "k1" in said
    assert "aws-x cannot be seen: no answer" in said
