import sys
from collections.abc import Iterator
from importlib.resources import files

import pytest

from stateward.config import Config
from stateward.lifecycle.render import svg
from stateward.server.http.security_headers import ALWAYS
from tests.integration.server.server_harness import NS, ServerHarness, open_server

OVC_VM = files("stateward.domains.ovc") / "pictures" / "ovc.vm.svg"


@pytest.fixture
def without_graphviz(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let Graphviz be missing, as where its extra is not installed."""
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    svg.cache_clear()
    yield
    svg.cache_clear()


@pytest.mark.parametrize("path", ["/kinds", f"/ns/{NS}/objects/none", "/nothing", "/stuck?limit=x"])
async def test_no_answer_is_to_be_kept_framed_or_guessed_at(harness: ServerHarness, path: str) -> None:
    answer = await harness.get(path)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert "strict-transport-security" not in answer.headers


async def test_a_server_with_tls_says_that_it_will_always_have_it() -> None:
    async with open_server(config=Config(tls_cert="cert.pem", tls_key="key.pem")) as harness:
        assert (await harness.get("/kinds")).headers["strict-transport-security"] == "max-age=31536000"


async def test_the_page_runs_nothing_from_outside_and_nothing_inline(harness: ServerHarness) -> None:
    async with harness.client({}) as client:
        page = await client.get("http://test/docs")
        program = await client.get("http://test/docs/page.js")
    assert page.headers["content-type"].startswith("text/html")
    assert program.headers["content-type"].startswith("text/javascript")
    for answer in (page, program):
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
    assert "http" not in page.text
    assert "<style" not in page.text
    assert "innerHTML" not in program.text


async def test_a_picture_may_use_its_own_style_and_nothing_else(harness: ServerHarness) -> None:
    answer = await harness.get("/kinds/test.pump/diagram")
    assert answer.headers["content-type"].startswith("image/svg+xml")
    assert answer.text.startswith("<svg")
    assert "style-src 'sha256-" in answer.headers["content-security-policy"]


async def test_without_graphviz_a_server_shows_the_pictures_that_plug_ins_bring(
    harness: ServerHarness, without_graphviz: None
) -> None:
    assert (await harness.get("/kinds/ovc.vm/diagram")).text == OVC_VM.read_text("utf-8")
    assert (await harness.get("/kinds/test.pump/diagram?format=mermaid")).text.startswith("stateDiagram-v2")
    answer = await harness.get("/kinds/test.pump/diagram")
    assert (answer.status_code, answer.json()["code"]) == (501, "not_offered")
    assert "stateward[drawings]" in answer.json()["detail"]


@pytest.mark.parametrize(("form", "beginning"), [("mermaid", "stateDiagram-v2"), ("markdown", "|")])
async def test_a_lifecycle_is_drawn_in_other_forms_too(harness: ServerHarness, form: str, beginning: str) -> None:
    assert beginning in (await harness.get(f"/kinds/test.pump/diagram?format={form}")).text


async def test_kinds_are_shown_without_the_deployments_own(harness: ServerHarness) -> None:
    kinds = (await harness.get("/kinds")).json()
    assert [one["kind"] for one in kinds] == ["test.pump", "test.station", "ovc.vm", "ovc.account"]
    assert (await harness.get("/kinds/ovc.vm")).json() == kinds[2]
    answer = await harness.get("/kinds/ovc.wm")
    assert (answer.status_code, answer.json()["nearest"]) == (404, "ovc.vm")


async def test_a_method_that_a_path_does_not_have_is_refused_with_those_it_has(harness: ServerHarness) -> None:
    answer = await harness.caller("admin").patch(f"/ns/{NS}/objects")
    assert (answer.status_code, set(answer.headers["allow"].split(", "))) == (405, {"GET", "OPTIONS", "POST"})
    assert answer.json()["code"] == "no_such_method"


async def test_the_answers_of_the_hot_routes_carry_each_header_once(harness: ServerHarness) -> None:
    await harness.built()
    shown = await harness.get(f"/ns/{NS}/objects/p1")
    unchanged = await harness.get(f"/ns/{NS}/objects/p1", headers={"If-None-Match": shown.headers["etag"]})
    accepted = await harness.post(f"/ns/{NS}/objects/p1/actions/pump")
    assert [one.status_code for one in (shown, unchanged, accepted)] == [200, 304, 202]
    for answer in (shown, unchanged, accepted):
        names = [name for name, _ in answer.headers.multi_items()]
        assert len(names) == len(set(names))
        assert {"etag", *ALWAYS} <= set(names)
