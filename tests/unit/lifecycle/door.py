"""A small sample lifecycle for tests: a door that can be locked, jammed and removed."""

from stateward.lifecycle import (
    BACK,
    CLOCK,
    FINAL,
    FORCE,
    GONE,
    MINUTE,
    NEW,
    PROVIDER,
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


class Door(State):
    HANGING = "hanging", TRANSITIONAL
    CLOSED = "closed", STABLE
    OPENING = "opening", TRANSITIONAL
    OPEN = "open", STABLE
    PAINTING = "painting", TRANSITIONAL
    JAMMED = "jammed", STABLE
    REMOVING = "removing", TRANSITIONAL
    REMOVED = "removed", FINAL


ROWS = (
    action(NEW, "hang", USER, Door.HANGING, Door.CLOSED, Door.JAMMED, MINUTE),
    action(Door.CLOSED, "open", USER, Door.OPENING, Door.OPEN, BACK, MINUTE),
    step(Door.OPEN, "close", USER, Door.CLOSED),
    action(Door.OPEN | Door.CLOSED, "paint", USER, Door.PAINTING, BACK, BACK, MINUTE),
    hidden(Door.OPEN | Door.CLOSED, "oil", USER, MINUTE),
    step(Door.OPEN | Door.CLOSED, "wind", PROVIDER, Door.JAMMED),
    action(Door.OPEN | Door.CLOSED | Door.JAMMED, "remove", USER, Door.REMOVING, Door.REMOVED, Door.JAMMED, MINUTE),
    action(every(Door), "remove", USER, Door.REMOVING, Door.REMOVED, Door.JAMMED, MINUTE, needs=FORCE),
    step(Door.REMOVED, "forget", USER, GONE),
)

DOOR = declare("test.door", Door, ROWS, USER | PROVIDER | CLOCK, about="a door")
