from collections.abc import Callable
from typing import Any

import pytest

from stateward.lifecycle import (
    ADMIN,
    AGENT,
    BACK,
    FORCE,
    GONE,
    MINUTE,
    NEW,
    STABLE,
    TRANSITIONAL,
    USER,
    MalformedRow,
    Row,
    State,
    action,
    cancellation,
    check,
    decide,
    declare,
    failure,
    hidden,
    request,
    step,
    success,
    timeout,
)


class Crane(State):
    MAKING = "making", TRANSITIONAL
    IDLE = "idle", STABLE
    LIFTING = "lifting", TRANSITIONAL
    UP = "up", STABLE


IDLE, UP, LIFTING = Crane.IDLE, Crane.UP, Crane.LIFTING

PAIRS: dict[str, tuple[Row, Row]] = {
    "action": (
        action(IDLE, "lift", USER, LIFTING, UP, BACK, MINUTE),
        action("lift", source=IDLE, through=LIFTING, to=UP, within=MINUTE),
    ),
    "action with all": (
        action(IDLE | UP, "lift", ADMIN, LIFTING, UP, IDLE, MINUTE, FORCE),
        action("lift", source=IDLE | UP, by=ADMIN, through=LIFTING, to=UP, error=IDLE, within=MINUTE, needs=FORCE),
    ),
    "request": (
        request(IDLE, "lift", USER, LIFTING, UP, BACK, MINUTE),
        request("lift", source=IDLE, through=LIFTING, to=UP, within=MINUTE),
    ),
    "hidden": (hidden(IDLE, "oil", USER, MINUTE), hidden("oil", source=IDLE, within=MINUTE)),
    "step": (step(UP, "drop", USER, IDLE), step("drop", source=UP, to=IDLE)),
    "step within": (
        step(UP, "drop", USER, LIFTING, within=MINUTE),
        step("drop", source=UP, to=LIFTING, within=MINUTE),
    ),
    "success": (success(LIFTING, "is up", AGENT, UP), success("is up", source=LIFTING, by=AGENT, to=UP)),
    "failure": (failure(LIFTING, "fell", AGENT, IDLE), failure("fell", source=LIFTING, by=AGENT, to=IDLE)),
    "cancellation": (
        cancellation(LIFTING, "let go", AGENT, IDLE),
        cancellation("let go", source=LIFTING, by=AGENT, to=IDLE),
    ),
    "timeout": (timeout(LIFTING, IDLE), timeout(source=LIFTING, to=IDLE)),
}


@pytest.mark.parametrize("word", PAIRS)
def test_a_row_with_names_is_the_row_of_a_table(word: str) -> None:
    of_table, with_names = PAIRS[word]
    assert with_names == of_table


WRONG: dict[str, tuple[Callable[..., Row], tuple[Any, ...], dict[str, Any], str]] = {
    "cells and names": (
        action, (IDLE, "lift", USER), {"through": LIFTING, "to": UP},
        r"action\(idle, 'lift', user, through=lifting, to=up\): error, within are missing",
    ),
    "the event, then cells": (
        action, ("lift", IDLE, USER), {"to": UP},
        r"action\('lift', idle, user, to=up\): after the event, the cells are written with names",
    ),
    "twice": (
        step, (UP, "drop", USER, IDLE), {"source": IDLE},
        r"step\(up, 'drop', user, idle, source=idle\): source is given twice",
    ),
    "a cell of another word": (
        step, ("drop",), {"source": UP, "to": IDLE, "through": LIFTING},
        r"step\('drop', .*\): there is no through; a row has source, event, by, to, within, needs",
    ),
    "no deadline": (
        hidden, ("oil",), {"source": IDLE | UP},
        r"hidden\('oil', source=idle\|up\): within is missing",
    ),
    "a report by nobody": (
        success, ("is up",), {"source": LIFTING, "to": UP},
        r"success\('is up', source=lifting, to=up\): by is missing",
    ),
    "too many": (
        cancellation, (LIFTING, "let go", AGENT, IDLE, (), 1), {},
        r"cancellation\(.*\): a row has at most 5 cells: source, event, by, to, needs",
    ),
    "a word for a state": (
        action, ("lift",), {"source": "idle", "through": LIFTING, "to": UP, "within": MINUTE},
        r"action\('lift', source='idle', .*\): source must be a state, or states joined with \|",
    ),
    "back from": (
        action, (IDLE, "lift", USER, BACK, UP, BACK, MINUTE), {}, r"through must be a state",
    ),
    "a place that is none": (
        timeout, (LIFTING, "idle"), {}, r"timeout\(lifting, 'idle', .*\): to must be a state, or BACK",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_row_that_cannot_be_read_is_refused_as_it_was_written(case: str) -> None:
    word, cells, named, text = WRONG[case]
    with pytest.raises(MalformedRow, match=text):
        word(*cells, **named)


def test_back_from_a_creation_is_gone() -> None:
    rows = [
        action("make", source=NEW, through=Crane.MAKING, to=IDLE, within=MINUTE),
        action("lift", source=IDLE, through=LIFTING, to=UP, within=MINUTE),
        action("remove", source=UP, through=LIFTING, to=GONE, within=MINUTE),
    ]
    crane = declare("test.crane", Crane, rows)
    assert check(crane) == ()
    failed = decide(crane, "making", "failed", "worker", origin=NEW.word)
    assert failed.target is GONE  # type: ignore[union-attr]
