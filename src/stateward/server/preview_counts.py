"""The counts of a preview: verdicts on many objects, grouped by what would become of them.

A group action can be for 10,000 objects, whose verdicts take a second or more to plan one by one. Objects of one kind,
state and protection get the same verdict from the lifecycle; only a guard can tell them apart. So `sample_classes`
chooses a few of each class, and the others get their verdict if the sample agrees.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec
from msgspec import Struct

from stateward.engine.accept.accept import Verdict
from stateward.engine.errors import NotFound, Refused
from stateward.errors import StatewardError
from stateward.schemas.preview import PreviewPlace, PreviewRefusal, PreviewTargets
from stateward.server.http.problem_details import mask_secrets, problem_of
from stateward.store.records import PROTECTED_LABEL, Object

MAX_PLACES = 20
MAX_EXAMPLES = 5
SAMPLE_SIZE = 20
"""How many objects of a class are planned one by one."""

ELSEWHERE = "elsewhere"


class Outcome(Struct, frozen=True):
    """What would become of an object: the states that it would pass and reach, or the refusal."""

    via: str | None = None
    desired: str = ""
    within: float | None = None
    code: str = ""
    detail: str = ""

    @property
    def is_refused(self) -> bool:
        return bool(self.code)


def outcome_of(verdict: Verdict) -> Outcome:
    """Return the outcome of a planned request; equal refusals of different objects have equal outcomes."""
    if isinstance(verdict, StatewardError):
        problem = mask_secrets(problem_of(verdict))
        # the operation in the way is another one for each object
        return Outcome(
            code=problem.code, detail=str(verdict.refusal) if isinstance(verdict, Refused) else problem.detail
        )
    operation = verdict.operation
    if operation is None:
        return Outcome(None, verdict.object.state)
    return Outcome(None if operation.hidden else operation.via, operation.desired, operation.within or None)


def sample_classes(members: Iterable[Object], protected: Collection[str]) -> list[list[Object]]:
    """Return the members by classes that get the same verdict; `protected` are the parents below a protected object."""
    classes: dict[tuple[object, ...], list[Object]] = {}
    for member in members:
        is_flagged = PROTECTED_LABEL in member.labels
        classes.setdefault(
            (member.kind, member.state, member.op is None, is_flagged, member.parent in protected), []
        ).append(member)
    return list(classes.values())


def evenly_chosen(members: Sequence[Object]) -> list[Object]:
    """Return a sample of a class, spread over all of it."""
    step = max(1, len(members) // SAMPLE_SIZE)
    return list(members[::step])


class TargetOutcome(Struct, frozen=True, gc=False):
    """An object with the outcome of an action on it."""

    object: Object
    outcome: Outcome


def count_targets(accepted: Iterable[TargetOutcome]) -> list[PreviewTargets]:
    """Return accepted objects by kind and states, the largest number first."""
    counts = Counter(
        (target.object.kind, target.object.state, target.outcome.via, target.outcome.desired) for target in accepted
    )
    return [PreviewTargets(*key, count) for key, count in counts.most_common()]


def count_places(accepted: Iterable[TargetOutcome]) -> list[PreviewPlace]:
    """Return accepted objects by place, the largest number first; objects without a place are left out."""
    by_labels = Counter(target.object.labels for target in accepted)
    counts = Counter[str]()
    for labels, count in by_labels.items():
        named: dict[str, str] = msgspec.json.decode(labels)
        if place := "/".join(named[name] for name in ("provider", "region") if named.get(name)):
            counts[place] += count
    first, rest = counts.most_common()[:MAX_PLACES], counts.most_common()[MAX_PLACES:]
    others = [PreviewPlace(ELSEWHERE, sum(count for _, count in rest))] if rest else []
    return [PreviewPlace(place, count) for place, count in first] + others


def count_refusals(refused: Iterable[TargetOutcome]) -> list[PreviewRefusal]:
    """Return refused objects by reason and state, the largest number first."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for target in refused:
        groups.setdefault((target.outcome.code, target.outcome.detail, target.object.state), []).append(
            target.object.id
        )
    counted = [PreviewRefusal(*key, len(ids), ids[:MAX_EXAMPLES]) for key, ids in groups.items()]
    return sorted(counted, key=lambda refusal: -refusal.count)


def refused_as_missing(ns: str, ids: Sequence[str]) -> list[PreviewRefusal]:
    """Return the refusal of named objects that do not exist, all in one."""
    text = f"there is no object of this name in namespace {ns!r}"
    return [PreviewRefusal(NotFound.code, text, "", len(ids), [*ids[:MAX_EXAMPLES]])] if ids else []
