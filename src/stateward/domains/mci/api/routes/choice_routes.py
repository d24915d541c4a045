"""Routes that choose specs and images from the catalogues of the caller's connections."""

from collections.abc import Sequence
from random import Random
from typing import Any

from litestar import get, post
from msgspec import Struct, field
from msgspec.structs import replace

from stateward.domains.mci.api import choice_bodies
from stateward.domains.mci.api.connection_views import known_location, location_of, region_view, spec_view
from stateward.domains.mci.api.context import TumblebugRequest
from stateward.domains.mci.api.operation_replies import OperationReply
from stateward.domains.mci.api.routes.catalogue_routes import EVERYBODY, records
from stateward.domains.mci.api.schemas import ImageView, KeyValue, RegionDetail, SpecView
from stateward.domains.mci.api.tumblebug_params import READ, Name, Ns, check_reference
from stateward.domains.mci.model import CloudConnection, ImageRecord, SpecRecord
from stateward.domains.mci.provider.catalogue import known_images, known_specs
from stateward.domains.mci.spec_choice import PRIORITIES, WAYS, SpecOffer, choose
from stateward.errors import BadInput, StatewardError
from stateward.plugin.route_options import reads, shares

CHANCE = Random()  # noqa: S311 - the order of a list
A_PLACE = {"connectionName": "aws-ap-northeast-2"}


# --- specs -----------------------------------------------------------------------------------------------------------


@post("/recommendSpec", opt=READ | reads(choice_bodies.A_CHOICE), status_code=200)
async def recommend_spec(request: TumblebugRequest) -> list[SpecView]:
    """Return the specs that fit the conditions, best first."""
    offers = await _offers(request)
    regions = {
        f"{offer.connection.provider}+{offer.connection.region}".lower(): offer.at for offer in offers if offer.at
    }
    wanted = choice_bodies.parse_choice(await request.fields(), regions)
    return _ordered(choose(offers, wanted.conditions, wanted.priorities, wanted.limit, CHANCE))


@get("/recommendSpecOptions", opt=READ)
async def recommend_spec_options(request: TumblebugRequest) -> dict[str, Any]:
    """Return what specs can be chosen by."""
    offers = await _offers(request)
    values = {
        "providerName": sorted({offer.connection.provider for offer in offers}),
        "regionName": sorted({offer.connection.region for offer in offers}),
        "architecture": sorted({offer.spec.architecture for offer in offers}),
        "acceleratorType": sorted({"gpu" for offer in offers if offer.spec.gpus}),
        "acceleratorModel": sorted({offer.spec.gpu_model for offer in offers if offer.spec.gpus}),
        "infraType": ["vm"],
    }
    ways = {
        "coordinateClose": ["37.57/126.98"],
        "coordinateWithin": ["37.57/126.98", "35.68/139.69"],
        "coordinateFair": ["37.57/126.98", "35.68/139.69"],
        "latencyMinimal": ["aws+ap-northeast-2", "gcp+asia-northeast1"],
    }
    assert ways.keys() == {way for several in WAYS.values() for way in several}
    return {
        "filter": {
            "availableMetrics": list(choice_bodies.METRICS),
            "availableValues": values,
            "examplePolicies": choice_bodies.A_CHOICE["filter"]["policy"],  # type: ignore[index]
            "limitExamples": ["0", "50", "100"],
        },
        "priority": {
            "availableMetrics": list(PRIORITIES),
            "examplePolicies": choice_bodies.A_CHOICE["priority"]["policy"],  # type: ignore[index]
            "parameterOptions": ways,
        },
        "limit": ["5", "10", "20", "50"],
    }


@post(
    ["/ns/{ns:str}/resources/filterSpecsByRange", "/ns/{ns:str}/resources/filterSpecs"],
    opt=READ | shares(EVERYBODY) | reads(choice_bodies.A_RANGE),
    status_code=200,
)
async def filter_specs(request: TumblebugRequest, ns: Ns) -> dict[str, list[SpecView]]:
    """Return the specs of a namespace within ranges; those of the providers are in the namespace `system`."""
    wanted = choice_bodies.parse_ranges(await request.fields())
    offers = await _offers(request) if ns == EVERYBODY else await _registered_offers(request, ns)
    return {"spec": _ordered(choose(offers, wanted.conditions, (), wanted.limit, CHANCE))}


async def _offers(request: TumblebugRequest) -> list[SpecOffer]:
    """Return the specs of all connections that the caller's namespaces may use."""
    return [_offer(spec, place) for place in await request.visible_connections() for spec in known_specs(place)]


async def _registered_offers(request: TumblebugRequest, ns: str) -> list[SpecOffer]:
    await request.service.namespace(ns)
    places = {connection.name: connection for connection in await request.visible_connections()}
    specs = await request.catalogue.specs(ns)
    return [_offer(spec, places[spec.connection]) for spec in specs if spec.connection in places]


def _offer(spec: SpecRecord, place: CloudConnection) -> SpecOffer:
    return SpecOffer(spec, place, known_location(place.provider, place.region))


def _ordered(offers: Sequence[SpecOffer]) -> list[SpecView]:
    return [
        replace(spec_view(offer.spec, offer.connection), order_in_filtered_result=number)
        for number, offer in enumerate(offers, 1)
    ]


# --- images ----------------------------------------------------------------------------------------------------------


class FoundImages(Struct, frozen=True, rename="camel"):
    """Images that a search has found."""

    image_count: int
    image_list: list[ImageView]


@post(
    "/ns/{ns:str}/resources/searchImage",
    opt=READ | shares(EVERYBODY) | reads(choice_bodies.AN_IMAGE_SEARCH),
    status_code=200,
)
async def search_image(request: TumblebugRequest, ns: Ns) -> FoundImages:
    """Return the images that fit: those of the providers, and those that are registered in the namespace."""
    wanted = await _with_spec(request, ns, choice_bodies.parse_image_search(await request.fields()))
    namespaces = dict.fromkeys((EVERYBODY, ns))
    stored = [record for home in namespaces for record in await records(request, home, "image")]
    fitting = [record for record in stored if isinstance(record, ImageView) and _fits(record, wanted)]
    shown = fitting[: wanted.limit or None]
    return FoundImages(len(shown), shown)


async def _with_spec(
    request: TumblebugRequest, ns: str, wanted: choice_bodies.ImageSearch
) -> choice_bodies.ImageSearch:
    """Return a search within the region and the architecture of the spec that the images are for."""
    if not wanted.spec:
        return wanted
    try:
        spec = await request.catalogue.spec(ns, wanted.spec)
    except BadInput as error:
        raise BadInput("matchedSpecId", wanted.spec, error.allowed) from error
    place = await request.require_connection("matchedSpecId", spec.connection)
    return replace(wanted, provider=place.provider, region=place.region.lower(), architecture=spec.architecture)


def _fits(image: ImageView, wanted: choice_bodies.ImageSearch) -> bool:
    if wanted.is_gpu or wanted.is_kubernetes:  # no catalogue says so of an image
        return False
    regions = [region.lower() for region in image.region_list]
    text = f"{image.os_type} {image.csp_image_name} {image.name} {image.description}".lower()
    return (
        wanted.provider in ("", image.provider_name)
        and (not wanted.region or not regions or wanted.region in regions)
        and wanted.architecture in ("", image.os_architecture)
        and all(word in text for word in wanted.words)
    )


@get("/ns/{ns:str}/resources/searchImageOptions", opt=READ | shares(EVERYBODY))
async def search_image_options(request: TumblebugRequest, ns: Ns) -> dict[str, Any]:
    """Return what images can be searched by."""
    stored = [record for home in dict.fromkeys((EVERYBODY, ns)) for record in await records(request, home, "image")]
    images = [record for record in stored if isinstance(record, ImageView)]
    return {
        "providerName": sorted({image.provider_name for image in images}),
        "regionName": sorted({region for image in images for region in image.region_list}),
        "osType": sorted({image.os_type for image in images if image.os_type}),
        "osArchitecture": sorted({image.os_architecture for image in images}),
        "isGPUImage": [False],
        "isKubernetesImage": [False],
        "isRegisteredByAsset": [False],
        "includeDeprecatedImage": [False],
        "matchedSpecId": ["aws+ap-northeast-2+t3.micro"],
        "detailSearchKeys": [["ubuntu", "22.04"]],
        "maxResults": [1, 10, 100],
    }


# --- the catalogue of one connection, in the words of CB-Spider -------------------------------------------------------


class SpiderCpu(Struct, frozen=True, rename="pascal"):
    """Processors of a spec."""

    count: str
    clock_ghz: str = field(name="ClockGHz", default="-1")


class SpiderSpec(Struct, frozen=True, rename="pascal"):
    """A spec."""

    region: str
    name: str
    v_cpu: SpiderCpu
    mem_size_mib: str
    disk_size_gb: str = field(name="DiskSizeGB")
    gpu: list[dict[str, str]]
    key_value_list: list[KeyValue]


class SpiderId(Struct, frozen=True, rename="pascal"):
    """The two names of an image."""

    name_id: str
    system_id: str


class SpiderImage(Struct, frozen=True, rename="pascal"):
    """An image."""

    i_id: SpiderId
    name: str
    os_architecture: str = field(name="OSArchitecture")
    os_distribution: str = field(name="OSDistribution")
    os_platform: str = field(name="OSPlatform", default="Linux/UNIX")
    os_disk_type: str = field(name="OSDiskType", default="NA")
    os_disk_size_gb: str = field(name="OSDiskSizeGB", default="-1")
    image_status: str = "Available"
    key_value_list: list[KeyValue] = []


@post("/lookupSpecs", opt=READ | reads(A_PLACE), status_code=200)
async def lookup_specs(request: TumblebugRequest) -> dict[str, list[SpiderSpec]]:
    """Return the specs that a connection offers."""
    place = await _place(request)
    return {"vmspec": [_spider_spec(spec, place) for spec in known_specs(place)]}


@post("/lookupSpec", opt=READ | reads({**A_PLACE, "cspSpecName": "t3.micro"}), status_code=200)
async def lookup_spec(request: TumblebugRequest) -> SpiderSpec:
    """Return a spec that a connection offers."""
    place, body = await _place(request), await request.fields()
    name = check_reference("cspSpecName", body.text("cspSpecName", "cspResourceId").strip(), needed=True)
    for spec in known_specs(place):
        if spec.csp_name == name:
            return _spider_spec(spec, place)
    raise BadInput("cspSpecName", name, f"a spec that {place.name} offers")


@post("/lookupImages", opt=READ | reads(A_PLACE), status_code=200)
async def lookup_images(request: TumblebugRequest) -> dict[str, list[SpiderImage]]:
    """Return the images that a connection offers."""
    return {"image": [_spider_image(image) for image in known_images(await _place(request))]}


@post("/lookupImage", opt=READ | reads({**A_PLACE, "cspImageName": "ubuntu22.04"}), status_code=200)
async def lookup_image(request: TumblebugRequest) -> SpiderImage:
    """Return an image that a connection offers."""
    place, body = await _place(request), await request.fields()
    name = check_reference("cspImageName", body.text("cspImageName", "cspResourceId").strip(), needed=True)
    for image in known_images(place):
        if image.csp_name == name:
            return _spider_image(image)
    raise BadInput("cspImageName", name, f"an image that {place.name} offers")


async def _place(request: TumblebugRequest) -> CloudConnection:
    name = (await request.fields()).text("connectionName").strip()
    try:
        return await request.visible_connection(name)
    except StatewardError as error:
        raise BadInput("connectionName", name, "the name of a connection") from error


def _spider_spec(spec: SpecRecord, place: CloudConnection) -> SpiderSpec:
    gpu = {"Count": str(spec.gpus), "Model": spec.gpu_model, "MemSizeGB": f"{spec.gpu_memory_gib:g}", "Mfr": "NA"}
    return SpiderSpec(
        place.region,
        spec.csp_name,
        SpiderCpu(str(spec.vcpu)),
        str(round(spec.memory_gib * 1024)),
        f"{spec.disk_gib:g}" if spec.disk_gib else "-1",
        [gpu] if spec.gpus else [],
        [KeyValue("costPerHour", f"{spec.cost:g}")],
    )


def _spider_image(image: ImageRecord) -> SpiderImage:
    return SpiderImage(SpiderId(image.csp_name, image.csp_name), image.csp_name, image.architecture, image.system)


# --- nothing to fetch -------------------------------------------------------------------------------------------------


@post(
    ["/fetchSpecs", "/fetchImages", "/fetchImagesAsync", "/fetchPrice"],
    opt=READ | reads({"targetProviders": ["aws"]}),
    status_code=200,
)
async def fetch_catalogue(request: TumblebugRequest) -> OperationReply:
    """Tell how large the catalogues are: they are those of the drivers, and need not be fetched."""
    return OperationReply(await _catalogue_text(request))


@post(
    ["/ns/{ns:str}/resources/fetchSpecs", "/ns/{ns:str}/resources/fetchImages"],
    opt=READ | shares(EVERYBODY) | reads(A_PLACE),
    status_code=200,
)
async def fetch_catalogue_of(request: TumblebugRequest, ns: Ns) -> OperationReply:  # noqa: ARG001 - the right is for it
    """Tell how large the catalogues are, in the form of older releases."""
    return OperationReply(await _catalogue_text(request))


@get("/fetchImagesResult", opt=READ)
async def fetched_images(request: TumblebugRequest) -> dict[str, Any]:
    """Return the number of images of each connection."""
    connections = await request.visible_connections()
    results = [
        {"connName": connection.name, "numOfImages": len(known_images(connection)), "succeed": True}
        for connection in connections
    ]
    return {
        "fetchOption": {},
        "registeredImages": sum(len(known_images(connection)) for connection in connections),
        "resultInDetail": results,
    }


async def _catalogue_text(request: TumblebugRequest) -> str:
    connections = await request.visible_connections()
    specs, images = (sum(len(known(connection)) for connection in connections) for known in (known_specs, known_images))
    return f"The catalogues of {len(connections)} connections have {specs} specs and {images} images"


# --- regions ---------------------------------------------------------------------------------------------------------


@get("/provider/{provider:str}/region/{region:str}", opt=READ)
async def get_region(request: TumblebugRequest, provider: Name, region: Name) -> RegionDetail:
    """Return a region of a provider."""
    for connection in await request.visible_connections():
        if (connection.provider, connection.region.lower()) == (provider.lower(), region.lower()):
            return region_view(connection)
    raise BadInput("region", f"{provider}+{region}", "a region of a connection")


class NamedRegion(Struct, frozen=True, rename="pascal"):
    """A region, in the words of CB-Spider."""

    region_name: str
    provider_name: str
    key_value_info_list: list[KeyValue]


@get(["/region", "/regionFromCsp"], opt=READ)
async def list_named_regions(request: TumblebugRequest) -> dict[str, list[NamedRegion]]:
    """Return the regions of the visible connections."""
    return {"region": [_named_region(connection) for connection in await request.visible_connections()]}


def _named_region(place: CloudConnection) -> NamedRegion:
    where = location_of(place.provider, place.region)
    facts = [KeyValue("Region", place.region), KeyValue("Zone", place.zone), KeyValue("Location", where.display)]
    return NamedRegion(place.name, place.provider.upper(), facts)


@get("/region/{region:str}", opt=READ)
async def get_named_region(request: TumblebugRequest, region: Name) -> NamedRegion:
    """Return the region of a connection."""
    return _named_region(await request.visible_connection(region))


ROUTES = (
    recommend_spec, recommend_spec_options, filter_specs, search_image, search_image_options,
    lookup_specs, lookup_spec, lookup_images, lookup_image, fetch_catalogue, fetch_catalogue_of, fetched_images,
    get_region, list_named_regions, get_named_region,
)  # fmt: skip
