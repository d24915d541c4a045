"""The EC2 client: calls in its own thread pool, each counted, with one kind of error.

boto3 blocks. The event loop's default pool has a few threads per processor, for the whole server. These calls mostly
wait for the network, so they have a pool of 32 threads.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from msgspec.structs import replace

from stateward.drivers.aws.credential_refs import Credential, read_credential
from stateward.drivers.aws.errors import STALE_CREDENTIAL, Ec2CallFailed, classify_error, not_connected
from stateward.drivers.aws.sdk import SDK_ERRORS, connect
from stateward.drivers.call_threads import CallThreads
from stateward.drivers.port import Meter, ProviderRegion, TransientFailure
from stateward.errors import StatewardError

THREADS = 32

Ec2Answer: TypeAlias = Mapping[str, Any]
"""An answer of EC2, as boto3 returns it."""


class Ec2Client:
    """Calls to EC2 in one region."""

    def __init__(self, provider_region: ProviderRegion, meter: Meter) -> None:
        self._region = provider_region
        self._meter = meter
        self._threads = CallThreads(THREADS, f"aws-{provider_region.region}")
        self._credential = Credential()
        self._client: Any = None
        self._connecting = asyncio.Lock()

    async def call(self, name: str, **parameters: object) -> Ec2Answer:
        """Make one call; raises only `Ec2CallFailed`."""
        client = await self._connected(name)
        self._meter("".join(word.title() for word in name.split("_")))
        try:
            answer: Ec2Answer = await self._in_thread(name, partial(getattr(client, name), **parameters))
        except SDK_ERRORS as error:
            failed = classify_error(name, error)
        else:
            return answer
        if failed.code in STALE_CREDENTIAL:
            self._client = None
        raise self._without_secrets(failed)

    async def pages(self, name: str, **parameters: object) -> AsyncIterator[Ec2Answer]:
        """Yield the pages of a listing, one call for each; raises as `call` does."""
        while True:
            page = await self.call(name, **parameters)
            yield page
            if not page.get("NextToken"):
                return
            parameters["NextToken"] = page["NextToken"]

    async def close(self) -> None:
        """Close the threads and connections; calls under way end within their time-outs."""
        self._threads.close()
        if self._client is not None:
            self._client.close()

    async def _connected(self, name: str) -> Any:  # noqa: ANN401 - boto3 has no types
        async with self._connecting:
            try:
                if self._client is None:
                    self._client = await self._in_thread(name, self._connect)
            except (*SDK_ERRORS, StatewardError, ValueError) as error:
                failed = error if isinstance(error, Ec2CallFailed) else not_connected(name, error)
            else:
                return self._client
        raise self._without_secrets(failed)

    def _connect(self) -> Any:  # noqa: ANN401
        self._credential = read_credential(self._region.credential)
        return connect(self._region, self._credential, THREADS)

    async def _in_thread(self, name: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401
        closed = Ec2CallFailed(name, "Closed", TransientFailure("", "the driver is closed"))
        return await self._threads.run(work, closed)

    def _without_secrets(self, failed: Ec2CallFailed) -> Ec2CallFailed:
        outcome = replace(failed.outcome, message=self._credential.hide(failed.outcome.message))
        return Ec2CallFailed(failed.call, failed.code, outcome)
