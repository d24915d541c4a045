"""The EC2 client."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeAlias

from stateward.drivers.aws.errors import classify_error
from stateward.drivers.aws.sdk import CREDENTIAL_ERRORS, SDK_ERRORS, connect
from stateward.drivers.aws.settings import Credential, read_credential, read_settings
from stateward.drivers.cloud.client import THREADS, BlockingClient
from stateward.drivers.port import Meter, ProviderRegion

Ec2Answer: TypeAlias = Mapping[str, Any]
"""An answer of EC2, as boto3 returns it."""


class Ec2Client(BlockingClient[Any]):
    """Calls to EC2 in one region, named as in boto3; the meter gets EC2's own names."""

    sdk_errors, login_errors = SDK_ERRORS, CREDENTIAL_ERRORS

    def __init__(self, provider_region: ProviderRegion, meter: Meter) -> None:
        super().__init__(provider_region, lambda name: meter(name.title().replace("_", "")), Credential())

    async def call(self, name: str, **parameters: object) -> Ec2Answer:
        """Make one call; raises only `CloudCallFailed`."""
        answer: Ec2Answer = await self._send(name, lambda client: getattr(client, name)(**parameters), classify_error)
        return answer

    async def pages(self, name: str, **parameters: object) -> AsyncIterator[Ec2Answer]:
        """Yield the pages of a listing, one call for each; raises as `call` does."""
        while True:
            page = await self.call(name, **parameters)
            yield page
            if not page.get("NextToken"):
                return
            parameters["NextToken"] = page["NextToken"]

    def _connect(self) -> Any:  # noqa: ANN401 - boto3 has no types
        self._credential = read_credential(self._region.credential)
        return connect(read_settings(self._region), self._credential, THREADS)

    def _close(self, session: Any) -> None:  # noqa: ANN401
        session.close()
