"""Routes of the history of creations: the log of a spec, and the risk of a further creation."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from litestar import get
from litestar.params import QueryParameter
from msgspec import Struct

from stateward.domains.mci.api.context import TumblebugRequest
from stateward.domains.mci.api.tumblebug_params import READ, TEXT, Name, check_reference
from stateward.domains.mci.provisioning_history import CreationAttempt, attempts_with, risk_of
from stateward.plugin.route_options import grant_of

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
