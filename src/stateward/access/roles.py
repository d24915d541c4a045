"""Roles and their rights. A right that is not listed here is denied."""

from enum import StrEnum

from stateward.lifecycle import ADMIN, USER, Actor


class Role(StrEnum):
    """The role of a token."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    AGENT = "agent"


class Right(StrEnum):
    """The right that a request needs."""

    READ = "read"  # look at objects, operations, the journal of one's namespaces
    ACT = "act"  # create objects, ask for actions, cancel
    GOVERN = "govern"  # an administrator's: limits, tokens, quotas, workers, healing; in a domain also of one namespace
    EXECUTE = "execute"  # run commands inside what runs
    REPORT = "report"  # speak as an agent


RIGHTS: dict[Role, frozenset[Right]] = {
    Role.VIEWER:   frozenset({Right.READ}),
    Role.OPERATOR: frozenset({Right.READ, Right.ACT}),
    Role.ADMIN:    frozenset({Right.READ, Right.ACT, Right.GOVERN, Right.EXECUTE}),
    Role.AGENT:    frozenset({Right.REPORT}),
}  # fmt: skip

ACTORS: dict[Role, Actor] = {Role.VIEWER: USER, Role.OPERATOR: USER, Role.ADMIN: ADMIN, Role.AGENT: USER}
"""The actor of each role, in the tables of the lifecycles."""
