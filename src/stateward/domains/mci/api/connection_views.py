"""Views of connections, specs and images, with the approximate locations of regions for maps."""

from stateward.domains.mci.api import schemas
from stateward.domains.mci.model import CloudConnection, ImageRecord, SpecRecord

CREDENTIAL_HOLDER = "admin"
"""The holder of the credentials of all connections."""

LOCATIONS = {
    #               display          latitude  longitude
    "Seoul":     schemas.Location("Seoul",       37.57,   126.98),
    "Tokyo":     schemas.Location("Tokyo",       35.68,   139.69),
    "Singapore": schemas.Location("Singapore",    1.35,   103.82),
    "Hong Kong": schemas.Location("Hong Kong",   22.32,   114.17),
    "Virginia":  schemas.Location("Virginia",    38.95,   -77.45),
    "Oregon":    schemas.Location("Oregon",      45.84,  -119.70),
    "Washington": schemas.Location("Washington", 47.23,  -119.85),
    "Iowa":      schemas.Location("Iowa",        41.26,   -95.86),
    "Carolina":  schemas.Location("South Carolina", 33.20, -80.01),
    "Frankfurt": schemas.Location("Frankfurt",   50.11,     8.68),
    "Amsterdam": schemas.Location("Netherlands", 52.37,     4.90),
    "Belgium":   schemas.Location("Belgium",     50.45,     3.82),
}  # fmt: skip

LOCATION_OF_REGION = {
    ("aws", "ap-northeast-2"): "Seoul",
    ("aws", "ap-northeast-1"): "Tokyo",
    ("aws", "ap-southeast-1"): "Singapore",
    ("aws", "us-east-1"): "Virginia",
    ("aws", "us-west-2"): "Oregon",
    ("aws", "eu-central-1"): "Frankfurt",
    ("azure", "koreacentral"): "Seoul",
    ("azure", "japaneast"): "Tokyo",
    ("azure", "southeastasia"): "Singapore",
    ("azure", "eastus"): "Virginia",
    ("azure", "westus2"): "Washington",
    ("azure", "westeurope"): "Amsterdam",
    ("gcp", "asia-northeast3"): "Seoul",
    ("gcp", "asia-northeast1"): "Tokyo",
    ("gcp", "asia-southeast1"): "Singapore",
    ("gcp", "us-central1"): "Iowa",
    ("gcp", "us-east1"): "Carolina",
    ("gcp", "europe-west1"): "Belgium",
    ("alibaba", "ap-northeast-2"): "Seoul",
    ("alibaba", "ap-northeast-1"): "Tokyo",
    ("alibaba", "cn-hongkong"): "Hong Kong",
    ("alibaba", "us-east-1"): "Virginia",
    ("alibaba", "eu-central-1"): "Frankfurt",
    ("ncp", "kr"): "Seoul",
    ("ncp", "jpn"): "Tokyo",
    ("ncp", "sgn"): "Singapore",
}


def known_location(provider: str, region: str) -> tuple[float, float] | None:
    """Return the latitude and the longitude of a region, or None if they are not known."""
    town = LOCATION_OF_REGION.get((provider, region))
    return None if town is None else (LOCATIONS[town].latitude, LOCATIONS[town].longitude)


def location_of(provider: str, region: str) -> schemas.Location:
    """Return the location of a region; an unknown region is at 0, 0."""
    town = LOCATION_OF_REGION.get((provider, region))
    return schemas.Location(region, 0.0, 0.0) if town is None else LOCATIONS[town]


def region_view(connection: CloudConnection) -> schemas.RegionDetail:
    """Return the region of a connection."""
    location = location_of(connection.provider, connection.region)
    zones = [connection.zone] if connection.zone else []
    return schemas.RegionDetail(connection.region, connection.region, location.display, location, zones)


def connection_view(connection: CloudConnection, *, credential: bool = False) -> schemas.ConnectionView:
    """Return the view of a connection; only global administrators see the name of its credential."""
    return schemas.ConnectionView(
        config_name=connection.name,
        provider_name=connection.provider,
        driver_name=connection.driver,
        credential_name=connection.credential if credential else "",
        credential_holder=CREDENTIAL_HOLDER,
        region_zone_info_name=f"{connection.provider}-{connection.region}",
        region_zone_info=schemas.RegionZoneInfo(connection.region, connection.zone),
        region_detail=region_view(connection),
        region_representative=True,
        verified=True,
    )


def spec_view(spec: SpecRecord, connection: CloudConnection | None) -> schemas.SpecView:
    """Return the view of a spec."""
    place = (
        schemas.Location("", 0.0, 0.0) if connection is None else location_of(connection.provider, connection.region)
    )
    return schemas.SpecView(
        id=spec.id,
        name=spec.id,
        connection_name=spec.connection,
        provider_name="" if connection is None else connection.provider,
        region_name="" if connection is None else connection.region,
        csp_spec_name=spec.csp_name,
        vcpu=spec.vcpu,
        memory_gib=spec.memory_gib,
        cost_per_hour=spec.cost,
        description=spec.description,
        architecture=spec.architecture,
        disk_size_gb=spec.disk_gib,
        accelerator_type="gpu" if spec.gpus else "",
        accelerator_model=spec.gpu_model,
        accelerator_count=spec.gpus,
        accelerator_memory_gb=spec.gpu_memory_gib,
        region_latitude=place.latitude,
        region_longitude=place.longitude,
    )


def image_view(image: ImageRecord, connection: CloudConnection | None) -> schemas.ImageView:
    """Return the view of an image."""
    return schemas.ImageView(
        id=image.id,
        name=image.id,
        connection_name=image.connection,
        provider_name="" if connection is None else connection.provider,
        csp_image_name=image.csp_name,
        os_type=image.system,
        description=image.description,
        region_list=[] if connection is None else [connection.region],
        os_architecture=image.architecture,
        os_distribution=image.system,
    )
