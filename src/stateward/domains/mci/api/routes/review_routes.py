"""Review route: whether an MCI could be created, and its cost, without creating anything."""

from collections.abc import Iterable, Sequence

from litestar import post
from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.mci import vm_placement
from stateward.domains.mci.action_effects import access_text
from stateward.domains.mci.api.context import TumblebugRequest
from stateward.domains.mci.api.mci_bodies import A_DYNAMIC_MCI, parse_mci, parse_recipient
from stateward.domains.mci.api.tumblebug_params import READ, Ns
from stateward.domains.mci.model import EVERYBODY, WORLD, CloudConnection, ImageRecord, MciSpec, SpecRecord, SubGroup
from stateward.domains.mci.provider.catalogue import Catalogue
from stateward.drivers import CallRefused, Inconclusive, SpecRegistrar
from stateward.errors import StatewardError
from stateward.plugin.route_options import reads
from stateward.store.records import Key

READY, WARNING, ERROR = "Ready", "Warning", "Error"

POLICIES = {
    "continue": ("VMs that fail stay, as Failed, and the others are used", "use refine afterwards to remove them"),
    "rollback": ("if one VM fails, all are terminated and removed", "for groups that are of use as a whole only"),
    "refine": ("VMs that fail are removed, and the others are used", "for groups in which any VM will do"),
}
"""The effect of each policy, and when to use it."""


class Validation(Struct, frozen=True, rename="camel"):
    """Whether a spec or an image is available."""

    resource_id: str
    resource_name: str
    is_available: bool
    status: str
    message: str
    csp_resource_id: str


class VmReview(Struct, frozen=True, rename="camel", kw_only=True):
    """Whether a subgroup can be created, the reason if not, and its cost."""

    vm_name: str
    sub_group_size: int
    status: str
    message: str
    can_create: bool
    spec_validation: Validation
    image_validation: Validation
    connection_name: str
    provider_name: str
    region_name: str
    estimated_cost: str
    info: list[str]
    warnings: list[str]
    errors: list[str]


class ResourceSummary(Struct, frozen=True, rename="camel"):
    """The resources that all subgroups need together."""

    total_providers: int
    total_regions: int
    unique_specs: list[str]
    unique_images: list[str]
    connection_names: list[str]
    provider_names: list[str]
    region_names: list[str]
    available_specs: int
    unavailable_specs: int
    available_images: int
    unavailable_images: int


class MciReview(Struct, frozen=True, rename="camel", kw_only=True):
    """The review of an MCI."""

    overall_status: str
    overall_message: str
    creation_viable: bool
    estimated_cost: str
    mci_name: str
    total_vm_count: int
    policy_on_partial_failure: str
    policy_description: str
    policy_recommendation: str
    vm_reviews: list[VmReview]
    resource_summary: ResourceSummary
    recommendations: list[str]


class ReviewedSubGroup(Struct, frozen=True):
    """A subgroup with its resolved records and its errors."""

    group: SubGroup
    spec: SpecRecord | None
    connection: CloudConnection | None
    image: ImageRecord | None
    errors: list[str]
    doubt: str = ""
    planned: vm_placement.PlacedSubGroup | None = None

    @property
    def cost(self) -> float:
        """Cost in dollars per hour."""
        return 0.0 if self.spec is None else self.spec.cost * self.group.size


@post("/ns/{ns:str}/mciDynamicReview", opt=READ | reads(A_DYNAMIC_MCI), status_code=200)
async def review_mci(request: TumblebugRequest, ns: Ns) -> MciReview:
    """Tell whether an MCI can be created, and its cost; writes nothing."""
    await request.service.namespace(ns)
    body = await request.fields()
    parse_recipient(body)
    wanted = parse_mci(body, "", dynamic=True)
    known, driver_of = request.catalogue.snapshot(), request.context.domain.clients.driver_for
    looked = [await _look(known, ns, group) for group in wanted.groups]
    looked = await _ask(driver_of, looked)
    namesake = await request.service.engine.store.reader.object(Key(ns, wanted.name))
    return reviewed(wanted, looked, taken=namesake is not None and not namesake.removed)


async def review_group(request: TumblebugRequest, ns: str, group: SubGroup) -> VmReview:
    """Tell whether a subgroup can be created, and its cost; writes nothing."""
    known, driver_of = request.catalogue.snapshot(), request.context.domain.clients.driver_for
    (looked,) = await _ask(driver_of, [await _look(known, ns, group)])
    return _vm_review(looked)


async def _look(catalogue: Catalogue, ns: str, group: SubGroup) -> ReviewedSubGroup:
    """Resolve a subgroup as far as possible."""
    looked = ReviewedSubGroup(group, None, None, None, [])
    try:
        spec = await catalogue.spec(ns, group.spec)
        looked = replace(looked, spec=spec)
        looked = replace(looked, connection=await vm_placement.connection_of(catalogue, ns, group, spec))
        planned = await vm_placement.place_subgroup(catalogue, ns, group)
        await vm_placement.check_resources(catalogue, ns, planned)
    except StatewardError as error:
        return replace(looked, errors=[str(error)])
    return replace(looked, image=planned.image, planned=planned)


async def _ask(driver_of: vm_placement.DriverOf, looked: Sequence[ReviewedSubGroup]) -> list[ReviewedSubGroup]:
    """Ask the providers about the resolved subgroups: all concurrently, each question once."""
    planned = [review.planned for review in looked if review.planned is not None]
    for placed in planned:
        driver = await driver_of(placed.connection)
        if isinstance(driver, SpecRegistrar):
            driver.register(placed.spec.csp_name, placed.image.csp_name)
    answers = iter(await vm_placement.check_offers(driver_of, planned))
    return [review if review.planned is None else _answered(review, review.planned, next(answers)) for review in looked]


def _answered(
    review: ReviewedSubGroup, planned: vm_placement.PlacedSubGroup, said: CallRefused | Inconclusive | None
) -> ReviewedSubGroup:
    if isinstance(said, CallRefused):
        return replace(review, errors=[str(vm_placement.refusal(planned, said))])
    return review if said is None else replace(review, doubt=said.message)


def reviewed(wanted: MciSpec, looked: Sequence[ReviewedSubGroup], *, taken: bool) -> MciReview:
    """Return the review of an MCI."""
    bad = [review for review in looked if review.errors]
    viable = not bad and not taken
    said = [f"an MCI of the name {wanted.name!r} exists already"] if taken else []
    said += [f"{len(bad)} of {len(looked)} subgroups cannot be made"] if bad else []
    does, when = POLICIES[wanted.policy]
    return MciReview(
        overall_status=ERROR
        if not viable
        else WARNING
        if any(review.doubt for review in looked)
        or any(source in (EVERYBODY, *WORLD) for source in wanted.access_from or ())
        else READY,
        overall_message="; ".join(said) or "all VMs can be made",
        creation_viable=viable,
        estimated_cost=money(sum(review.cost for review in looked)),
        mci_name=wanted.name,
        total_vm_count=sum(review.group.size for review in looked),
        policy_on_partial_failure=wanted.policy,
        policy_description=does,
        policy_recommendation=when,
        vm_reviews=[_vm_review(review) for review in looked],
        resource_summary=_summary(looked),
        recommendations=[
            access_text(wanted),
            *(f"{review.group.name}: {why}" for review in looked for why in review.errors),
        ],
    )


def _vm_review(review: ReviewedSubGroup) -> VmReview:
    can = not review.errors
    unpriced = review.spec is not None and review.spec.cost == 0.0
    doubtful = [f"the provider cannot say now whether it has them: {review.doubt}"] if review.doubt else []
    warnings = [*doubtful, *(["the price of the spec is not known"] if unpriced else [])]
    return VmReview(
        vm_name=review.group.name,
        sub_group_size=review.group.size,
        status=ERROR if not can else WARNING if warnings else READY,
        message="can be made" if can else "; ".join(review.errors),
        can_create=can,
        spec_validation=_validation(review.group.spec, review.spec, review.errors),
        image_validation=_validation(review.group.image, review.image, review.errors),
        connection_name="" if review.connection is None else review.connection.name,
        provider_name="" if review.connection is None else review.connection.provider,
        region_name="" if review.connection is None else review.connection.region,
        estimated_cost=money(review.cost),
        info=[] if review.spec is None else [f"{review.spec.vcpu} vCPU, {review.spec.memory_gib:g} GiB each"],
        warnings=warnings,
        errors=review.errors,
    )


def _validation(id_: str, record: SpecRecord | ImageRecord | None, errors: Sequence[str]) -> Validation:
    if record is None:
        return Validation(id_, id_, False, "Unavailable", "; ".join(errors), "")
    return Validation(id_, record.csp_name, True, "Available", "", record.csp_name)


def _summary(looked: Sequence[ReviewedSubGroup]) -> ResourceSummary:
    places = [review.connection for review in looked if review.connection is not None]
    specs = {review.group.spec: review.spec is not None for review in looked}
    images = {review.group.image: review.image is not None for review in looked}
    providers, regions = _each(place.provider for place in places), _each(place.region for place in places)
    return ResourceSummary(
        len(providers),
        len(_each(place.lane for place in places)),
        list(specs),
        list(images),
        _each(place.name for place in places),
        providers,
        regions,
        sum(specs.values()),
        len(specs) - sum(specs.values()),
        sum(images.values()),
        len(images) - sum(images.values()),
    )


def _each(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def money(dollars: float) -> str:
    """Return a text for dollars per hour."""
    return f"${dollars:.4f}/hour"


ROUTES = (review_mci,)
