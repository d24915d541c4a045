"""Random bodies, queries and names: each gets a response, and never a 500."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote, urlencode

import msgspec
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.domains.mci.api_harness import AWS, NANO, NS, UBUNTU, Answer, ApiHarness, open_api
from tests.long_forms import in_long_form

M1 = f"/ns/{NS}/mci/m1"
R = f"/ns/{NS}/resources"
OWN = "http://test/api/v1/mci"
HEAD = {"name", "subGroups", "vm", "label", "policyOnPartialFailure", "postCommand", "description", "systemLabel"}
GROUP = {"name", "subGroupSize", "specId", "imageId", "vNetId", "sshKeyId", "connectionName", "rootDiskSize", "label"}

BODIES: list[tuple[str, str, set[str]]] = [
    ("POST", "/ns", {"name", "description"}),
    ("PUT", f"/ns/{NS}", {"description"}),
    ("POST", f"/ns/{NS}/mci", HEAD),
    ("POST", f"/ns/{NS}/mciDynamic", HEAD),
    ("POST", f"/ns/{NS}/mciDynamicReview", HEAD),
    ("POST", f"{M1}/vm", GROUP),
    ("POST", f"{M1}/subGroupDynamic", GROUP),
    ("POST", f"{M1}/subgroup/g1", {"numVMsToAdd", "numVMsToRemove"}),
    ("POST", f"{R}/vNet", {"name", "connectionName", "cidrBlock", "subnetInfoList"}),
    ("POST", f"{R}/securityGroup", {"name", "connectionName", "vNetId", "firewallRules"}),
    ("POST", f"{R}/sshKey", {"name", "connectionName", "publicKey"}),
    ("POST", f"{R}/spec", {"name", "connectionName", "cspSpecName", "vCPU", "costPerHour"}),
    ("POST", f"{R}/image", {"name", "connectionName", "cspImageName"}),
    ("POST", f"{OWN}/connections", {"name", "provider", "region", "driver", "options", "zone"}),
    ("POST", f"{OWN}/orphans/terminate", {"connection", "key", "keys"}),
]

QUERIES: list[tuple[str, str]] = [
    ("GET", f"/ns/{NS}/mci"),
    ("GET", M1),
    ("GET", f"{M1}/vm/g1-1"),
    ("POST", M1),
    ("POST", f"{M1}/vm/g1-1"),
    ("GET", f"/ns/{NS}/control/mci/m1"),
    ("DELETE", f"/ns/{NS}/mci/m9"),
    ("DELETE", f"{R}/vNet/v9"),
    ("GET", f"{R}/securityGroup"),
    ("GET", f"{R}/spec"),
    ("GET", "/requests"),
    ("GET", f"{OWN}/orphans"),
]
ASKED = ["option", "action", "force", "wait", "fresh", "vm", "filterKey", "filterVal", "status", "url", "connection"]

PATHS: list[tuple[str, str]] = [
    ("GET", "/ns/{}"), ("GET", "/ns/{}/mci"), ("GET", f"/ns/{NS}/mci/{{}}"), ("GET", f"{M1}/vm/{{}}"),
    ("GET", f"{M1}/subgroup/{{}}"), ("DELETE", f"{M1}/vm/{{}}"), ("GET", f"{R}/vNet/{{}}"), ("GET", f"{R}/spec/{{}}"),
    ("DELETE", f"{R}/image/{{}}"), ("GET", "/connConfig/{}"), ("GET", "/provider/{}/region"), ("GET", "/request/{}"),
    ("DELETE", f"{OWN}/connections/{{}}"), ("POST", f"/ns/{NS}/mci/{{}}?action=suspend"),
]  # fmt: skip

words = st.sampled_from(["m1", "g1", "1", "0", "true", "default", "null", AWS, NANO, UBUNTU, "10.0.0.0/16", "22", ""])
texts = words | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | numbers | texts
keys = st.sampled_from(sorted(GROUP | {"ipv4_CIDR", "Ports", "Protocol", "CIDR", "FromPort"})) | st.text(max_size=4)
trees = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5))

MANY = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
with_examples = pytest.mark.parametrize("examples", in_long_form((100, 300), short=(100,)))


def bodies(fields: set[str]) -> st.SearchStrategy[bytes]:
    """Return JSON that looks like the body, JSON that does not, and what is no JSON at all."""
    near = st.dictionaries(st.sampled_from(sorted(fields)), trees, min_size=1, max_size=6)
    return st.one_of(near.map(msgspec.json.encode), near.map(msgspec.json.encode), st.binary(max_size=20))


@asynccontextmanager
async def furnished(folder: Path) -> AsyncIterator[ApiHarness]:
    async with open_api(folder) as harness:
        await harness.created()
        yield harness


Portal = tuple[BlockingPortal, ApiHarness]


@pytest.fixture
def portal(tmp_path: Path) -> Iterator[Portal]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(furnished(tmp_path)) as harness:
        yield portal, harness


async def sent(harness: ApiHarness, method: str, path: str, body: bytes = b"") -> Answer:
    return await harness.client().request(method, path, content=body)


@with_examples
def test_no_body_breaks_the_server(portal: Portal, examples: int) -> None:
    @settings(MANY, max_examples=examples)
    @given(st.sampled_from(BODIES).flatmap(lambda one: st.tuples(st.just(one), bodies(one[2]))))
    def check(drawn: tuple[tuple[str, str, set[str]], bytes]) -> None:
        (method, path, _), body = drawn
        answer = portal[0].call(sent, portal[1], method, path, body)
        assert answer.status_code < 500, (path, body, answer.text)
        assert answer.status_code != 400 or answer.json()["field"], answer.text

    check()


@with_examples
def test_no_query_breaks_the_server(portal: Portal, examples: int) -> None:
    query = st.dictionaries(st.sampled_from(ASKED), texts, max_size=3)

    @settings(MANY, max_examples=examples)
    @given(st.sampled_from(QUERIES), query.filter(lambda asked: asked.get("wait", "") not in ("1", "22")))
    def check(route: tuple[str, str], asked: dict[str, str]) -> None:
        answer = portal[0].call(sent, portal[1], route[0], f"{route[1]}?{urlencode(asked)}")
        assert answer.status_code < 500, (route, asked, answer.text)

    check()


@with_examples
def test_no_name_breaks_the_server(portal: Portal, examples: int) -> None:
    @settings(MANY, max_examples=examples)
    @given(st.sampled_from(PATHS), texts.filter(lambda name: name not in ("", ".", "..", "m1")))
    def check(route: tuple[str, str], name: str) -> None:
        answer = portal[0].call(sent, portal[1], route[0], route[1].format(quote(name, safe="")))
        assert answer.status_code < 500, (route, name, answer.text)

    check()
