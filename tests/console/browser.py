"""Debian's Chromium, driven by Playwright; the errors of a page are recorded.

Chromium's headless shell is the same engine without the windows of a desktop browser. It is preferred, because with
them a page costs three times the processor time: each has processes of its own.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct, field
from playwright.sync_api import Browser, BrowserContext, Error, Page, Playwright, sync_playwright

PATIENT = 60_000
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser")
CHROMIUM = next(filter(None, map(shutil.which, PROGRAMS)), None)
WITHOUT_NETLINK = Path(__file__).with_name("chromium_without_netlink.py")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]

WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective}: ${event.blockedURI}`);
});
"""
AUDIT = """async (asked) => {
  const {rules, parts} = asked ?? {};
  const all = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const where = parts?.length ? {include: parts} : document;
  const found = await axe.run(where, {resultTypes: ["violations"], runOnly: rules ?? all});
  return found.violations
    .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`);
}"""
CONTRAST = ["color-contrast"]
"""The rules that depend on the theme."""

SIGNED_IN = """
if (!localStorage.getItem("test-began")) {
  localStorage.setItem("test-began", "yes");
  localStorage.setItem("stateward-signed-in", "yes");
}
"""
"""In the first page of a context only: who signs out stays so."""
NO_TOUR = 'localStorage.setItem("stateward-tour", "seen");'


class PageErrors(Struct):
    """The errors of a page, and its requests to other hosts."""

    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


def launch_browser(playwright: Playwright) -> Browser:
    """Start the browser."""
    environ: dict[str, str | float | bool] = {**os.environ, "CHROMIUM": str(CHROMIUM)}
    return playwright.chromium.launch(executable_path=WITHOUT_NETLINK, args=FLAGS, env=environ)


class SharedBrowser:
    """A browser for several modules in a row, which starts when one needs it, and again if it has died meanwhile."""

    def __init__(self) -> None:
        self._browser: Browser | None = None
        self._exits = ExitStack()

    def start(self) -> Browser:
        """Return the running browser."""
        if self._browser is None or not self._answers(self._browser):
            self.stop()
            self._browser = launch_browser(self._exits.enter_context(sync_playwright()))
        return self._browser

    def stop(self) -> None:
        """End the driver, whose event loop runs in this thread, and with it the browser."""
        self._browser = None
        self._exits.close()

    @staticmethod
    def _answers(browser: Browser) -> bool:
        try:
            browser.new_context().close()
        except Error:
            return False
        return True


def record_errors(page: Page, origin: str) -> PageErrors:
    """Record the errors of a page."""
    page_errors = PageErrors()
    page.on("console", lambda message: page_errors.errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page_errors.errors.append(str(error)))
    page.on("request", lambda asked: None if _inside(asked.url, origin) else page_errors.outside.append(asked.url))
    return page_errors


def _inside(url: str, origin: str) -> bool:
    return url.startswith(("data:", "blob:")) or urlsplit(url).netloc == urlsplit(origin).netloc


def sign_in(context: BrowserContext, url: str, token: str) -> None:
    """Give a browser the cookie of a session, as the sign-in of the page does."""
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(url))
    own = {"X-Stateward-Request": "1", "Origin": origin}
    answer = context.request.post(f"{origin}/api/v1/session", data={"token": token}, headers=own)
    assert answer.status == HTTPStatus.CREATED, answer.text()
    context.add_init_script(SIGNED_IN)


@contextmanager
def signed_in(
    browser: Browser,
    url: str,
    token: str,
    *,
    theme: str = "dark",
    width: int = 1440,
    height: int = 900,
    tour: bool = False,
    motion: bool = False,
) -> Iterator[tuple[BrowserContext, Page, PageErrors]]:
    """Open the console as somebody who has signed in. Most tests want no motion: each frame of it is drawn anew."""
    scheme = "light" if theme == "light" else "dark"
    size = {"width": width, "height": height}
    moving = "no-preference" if motion else "reduce"
    context = browser.new_context(color_scheme=scheme, viewport=size, reduced_motion=moving)  # type: ignore[arg-type]
    context.set_default_timeout(PATIENT)
    context.add_init_script(WATCH + ("" if tour else NO_TOUR))
    sign_in(context, url, token)
    page = context.new_page()
    page_errors = record_errors(page, url)
    page.goto(url)
    try:
        yield context, page, page_errors
    finally:
        context.close()
