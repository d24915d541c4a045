"""Who may move a state.

An actor is a role in a lifecycle's table, not a person. The set is open: a domain or a user's own lifecycle may name
further ones (a carrier, an auditor), as long as the lifecycle declares them.
"""

from __future__ import annotations


class Actor(str):
    """A role that may make a move; roles are joined with `|` where several may make the same one."""

    __slots__ = ()

    def __or__(self, other: Actor | Actors) -> Actors:
        return Actors((self,)) | other


class Actors(tuple[Actor, ...]):
    """Several roles, any of which may make the move."""

    __slots__ = ()

    def __or__(self, other: Actor | Actors) -> Actors:
        return Actors((*self, other) if isinstance(other, Actor) else (*self, *other))


USER = Actor("user")  # asks for things
ADMIN = Actor("admin")  # may do all that a user may, and what only administrators may
CONTROLLER = Actor("controller")  # the server acting in its own right
WORKER = Actor("worker")  # does the work of an accepted action
AGENT = Actor("agent")  # works for us on a remote site, and reports
PROVIDER = Actor("provider")  # what the cloud itself shows
CLOCK = Actor("clock")  # a deadline or a timer
HEALER = Actor("healer")  # settles what outlived its deadline

IMPLIED_ACTORS: dict[Actor, tuple[Actor, ...]] = {USER: (ADMIN,)}
"""What is allowed to the key is allowed to the values too."""


def with_implied_actors(actors: Actor | Actors) -> Actors:
    """Return the actors named, and those who may do all that they may."""
    named = (actors,) if isinstance(actors, Actor) else actors
    return Actors(dict.fromkeys(implied for actor in named for implied in (actor, *IMPLIED_ACTORS.get(actor, ()))))
