"""Routes of the history of creations: the log of a spec, and the risk of a further creation."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from litestar import get
from litestar.params import QueryParameter
from msgspec import Struct

from stateward.domains.mci.api.context import TumblebugRequest
from stateward.domains.mci.api.tumblebug_params import READ, TEXT, Name, check_reference
from stateward.domains.mci.lifecycle import VM
from stateward.domains.mci.model import vm_of
from stateward.plugin.route_options import grant_of
from stateward.store.filters import OperationFilter
from stateward.store.port import Reader
from stateward.store.records import Key, Status

MAX_CREATIONS = 200
"""How many creations of each namespace are read, newest first."""

READ_ROWS = 50_000
"""How many operations are looked at, newest first and as many of each namespace: no index has creations of VMs."""

HIGH_RATE, MEDIUM_RATE = 0.8, 0.5
"""The shares of failures from which a risk is high, or medium."""


class CreationAttempt(Struct, frozen=True):
    """One VM that was created, or could not be."""

    spec: str
    image: str
    connection: str
    provider: str
    region: str
    succeeded: bool
    error: str
    ended: float


class Risk(Struct, frozen=True):
    """How likely a creation fails, by what has happened before."""

    level: str
    message: str
    rate: float


async def attempts_with(reader: Reader, namespaces: Sequence[str], spec: str) -> list[CreationAttempt]:
    """Return the creations of VMs with a spec, oldest first."""
    attempts: list[CreationAttempt] = []
    for ns in namespaces:
        reached = await reader.operation_reach(ns, None, READ_ROWS // len(namespaces) + 1)
        wanted = OperationFilter(ns, kind=VM.kind, action="create", oldest=reached)
        for entry in await reader.list_operations(wanted, None, MAX_CREATIONS):
            parts = [entry, *await reader.children_of(entry.key)]
            ended = [
                operation
                for operation in parts
                if operation.kind == VM.kind and operation.action == "create" and operation.ended is not None
            ]
            objects = await reader.objects([Key(ns, operation.object) for operation in ended])
            for operation in ended:
                created = objects.get(Key(ns, operation.object))
                if created is None or operation.status not in (Status.SUCCEEDED, Status.FAILED):
                    continue
                vm = vm_of(created)
                if vm.spec == spec:
                    good, at = operation.status is Status.SUCCEEDED, operation.ended or 0.0
                    place = vm.connection, vm.provider, vm.region
                    attempts.append(CreationAttempt(vm.spec, vm.csp_image, *place, good, operation.error or "", at))
    return sorted(attempts, key=lambda attempt: attempt.ended)


def risk_of(attempts: Sequence[CreationAttempt]) -> Risk:
    """Return the risk of a further creation."""
    if not attempts:
        return Risk("low", "no VM of this spec was created here before", 0.0)
    failed = sum(not attempt.succeeded for attempt in attempts)
    rate = failed / len(attempts)
    level = "high" if rate >= HIGH_RATE else "medium" if rate >= MEDIUM_RATE else "low"
    return Risk(level, f"{failed} of {len(attempts)} creations with this spec have failed", rate)


MAX_MESSAGES = 10
"""How many of the latest failures are shown."""

SpecId = Annotated[str | None, QueryParameter(name="specId", pattern=TEXT, description="the spec")]
ImageName = Annotated[
    str | None, QueryParameter(name="cspImageName", pattern=TEXT, description="the image, by its provider's name")
]


class ProvisioningLog(Struct, frozen=True, rename="camel"):
    """The creations of VMs with a spec."""

    spec_id: str
    connection_name: str
    provider_name: str
    region_name: str
    failure_count: int
    success_count: int
    failure_timestamps: list[str]
    success_timestamps: list[str]
    failure_messages: list[str]
    failure_images: list[str]
    success_images: list[str]
    last_updated: str
    additional_info: dict[str, str] = {}


@get("/provisioning/log/{name:str}", opt=READ)
async def provisioning_log(request: TumblebugRequest, name: Name) -> ProvisioningLog:
    """Return how often VMs of a spec were created, and why they failed, in the caller's namespaces."""
    attempts = await _attempts(request, name)
    good, bad = _split(attempts)
    last = attempts[-1] if attempts else None
    return ProvisioningLog(
        name,
        "" if last is None else last.connection,
        "" if last is None else last.provider,
        "" if last is None else last.region,
        len(bad),
        len(good),
        [_time(attempt.ended) for attempt in bad],
        [_time(attempt.ended) for attempt in good],
        [attempt.error for attempt in bad],
        sorted({attempt.image for attempt in bad}),
        sorted({attempt.image for attempt in good}),
        "" if last is None else _time(last.ended),
    )


@get("/provisioning/risk/{name:str}", opt=READ)
async def provisioning_risk(request: TumblebugRequest, name: Name, image: ImageName = None) -> dict[str, Any]:
    """Return the risk that a creation with a spec fails, by what has happened before."""
    return await _risk(request, name, image or "")


@get("/provisioning/risk/detailed", opt=READ)
async def detailed_risk(request: TumblebugRequest, spec: SpecId = None, image: ImageName = None) -> dict[str, Any]:
    """Return the risk of a creation, of its spec and of its image."""
    name = check_reference("specId", (spec or "").strip(), needed=True)
    analysis: dict[str, Any] = (await _risk(request, name, image or ""))["analysis"]
    return analysis


async def _risk(request: TumblebugRequest, spec: str, image: str) -> dict[str, Any]:
    attempts = await _attempts(request, spec)
    good, bad = _split(attempts)
    whole, of_image = risk_of(attempts), risk_of([attempt for attempt in attempts if attempt.image == image])
    worst = of_image if image and of_image.rate > whole.rate else whole
    analysis = {
        "specRisk": {
            "level": whole.level,
            "message": whole.message,
            "failureRate": whole.rate,
            "totalFailures": len(bad),
            "totalSuccesses": len(good),
            "failedImageCount": len({attempt.image for attempt in bad}),
            "succeededImageCount": len({attempt.image for attempt in good}),
        },
        "imageRisk": {
            "level": of_image.level,
            "message": of_image.message,
            "hasFailedWithSpec": any(attempt.image == image for attempt in bad),
            "hasSucceededWithSpec": any(attempt.image == image for attempt in good),
            "isNewCombination": all(attempt.image != image for attempt in attempts),
        },
        "overallRisk": {
            "level": worst.level,
            "message": worst.message,
            "primaryRiskFactor": "image" if worst is of_image else "spec" if attempts else "none",
        },
        "recentFailureMessages": [attempt.error for attempt in bad[-MAX_MESSAGES:]],
        "recommendations": [] if worst.level == "low" else ["choose another spec, region or image"],
    }
    return {"riskLevel": worst.level, "riskMessage": worst.message, "analysis": analysis}


async def _attempts(request: TumblebugRequest, spec: str) -> list[CreationAttempt]:
    reader, covered = request.service.engine.store.reader, grant_of(request).namespace_filter
    return await attempts_with(reader, await reader.namespaces() if covered is None else sorted(covered), spec)


def _split(attempts: Sequence[CreationAttempt]) -> tuple[list[CreationAttempt], list[CreationAttempt]]:
    return [attempt for attempt in attempts if attempt.succeeded], [
        attempt for attempt in attempts if not attempt.succeeded
    ]


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


ROUTES = (provisioning_log, provisioning_risk, detailed_risk)
