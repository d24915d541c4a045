"""Google Compute Engine behind the drivers' port, on google-cloud-compute (the extra `gcp`)."""

from stateward.drivers.gcp.driver import GcpDriver
from stateward.drivers.gcp.service_accounts import ServiceAccountMissing

__all__ = ["GcpDriver", "ServiceAccountMissing"]
