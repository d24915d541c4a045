"""Azure virtual machines behind the drivers' port, on the vendor's libraries (the extra `azure`)."""

from stateward.drivers.azure.driver import AzureDriver

__all__ = ["AzureDriver"]
