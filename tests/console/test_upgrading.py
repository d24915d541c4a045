"""An upgrade of a real agent, asked for and seen in the page, step by step."""

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.console.browser import signed_in
from tests.integration.domains.edge.process_deployment import install_gated_release, open_deployment

HERE = "/cloudlets/munich"


def test_an_upgrade_is_asked_for_and_seen_from_its_first_step_to_the_new_version(
    browser: Browser, tmp_path: Path
) -> None:
    with open_deployment(tmp_path) as deployment:
        deployment.call("POST", "/cloudlets", {"name": "munich"})
        deployment.work()
        deployment.until(HERE, "Ready", online=True)
        gate = install_gated_release(deployment, "9.9")
        with signed_in(browser, f"{deployment.server.url}/#/edge", deployment.server.token) as (_, page, page_errors):
            row = page.locator("tr", has_text="munich").first
            expect(row).to_contain_text("connected")
            row.get_by_role("button", name="upgrade…").click()
            page.locator("#question [name=version]").fill("9.9")
            page.locator("#question form").get_by_role("button", name="Upgrade", exact=True).click()
            expect(row).to_contain_text("2 of 4: the new agent starts", timeout=60_000)
            gate.touch()
            expect(row).to_contain_text("none under way", timeout=60_000)
            expect(row).to_contain_text("9.9", timeout=60_000)
            assert page_errors.errors == []
