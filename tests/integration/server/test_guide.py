"""The guide to the REST API is served as a page, and the API's description is found where tools look for it."""

import re

from tests.integration.server.server_harness import ServerHarness

AT = "http://test"


async def test_the_guide_is_a_page_that_everybody_may_read(harness: ServerHarness) -> None:
    async with harness.client({}) as client:
        answer = await client.get(f"{AT}/docs/guide")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    anchors = set(re.findall(r'<h\d id="([^"]+)"', answer.text))
    assert set(re.findall(r'href="#([^"]+)"', answer.text)) <= anchors
    assert {"authentication", "idempotency", "watching"} <= anchors
    assert "<table>" in answer.text


async def test_the_pages_of_the_api_lead_to_each_other(harness: ServerHarness) -> None:
    async with harness.client({}) as client:
        assert 'href="docs/guide"' in (await client.get(f"{AT}/docs")).text
        for link in ("../docs", "openapi.json", "page.css"):
            assert f'href="{link}"' in (await client.get(f"{AT}/docs/guide")).text
            assert (await client.get(f"{AT}/docs/{link}")).status_code == 200


async def test_tools_that_look_for_the_description_at_the_root_are_led_to_it(harness: ServerHarness) -> None:
    async with harness.client({}) as client:
        answer = await client.get(f"{AT}/openapi.json")
        assert (answer.status_code, answer.headers["location"]) == (308, "docs/openapi.json")
        found = await client.get(f"{AT}/openapi.json", follow_redirects=True)
        assert found.json()["info"]["title"] == "Stateward"
