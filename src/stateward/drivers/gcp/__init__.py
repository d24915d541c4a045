"""Google Compute Engine behind the drivers' port, on google-cloud-compute (the extra `gcp`)."""

from stateward.drivers.gcp.driver import GcpDriver

__all__ = ["GcpDriver"]
