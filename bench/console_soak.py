"""The console's memory in real time: `make console-soak MINUTES=60`.

A server changes the states of a fleet and of a large MCI 200 times a second. The overview and the MCI page are open all
the time, and their memory is measured every minute, after garbage collection. It fails if the last quarter of the time
needs more than a fifth above the second quarter; the first one fills caches.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from playwright.sync_api import expect, sync_playwright

from bench.console_page import LOADED, RATE, SEQ, heap_mb
from tests.console.browser import launch_browser, signed_in
from tests.console.sample_objects import LARGE_MCI
from tests.console.server_process import run_console_server

CELLS, VMS = 5_000, 5_000
VIEWS = {"overview": LOADED, "mci": f"[data-mci={LARGE_MCI}] .groups li"}
MOST_GROWTH = 1.2


def main() -> None:
    """Measure, and tell."""
    parser = argparse.ArgumentParser(prog="python -m bench.console_soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long; 60 unless given")
    parser.add_argument("--every", type=float, default=60.0, metavar="SECONDS", help="how often; 60 unless given")
    asked = parser.parse_args()
    sizes = measure(asked.minutes * 60, asked.every)
    quarter = len(next(iter(sizes.values()))) // 4
    worse = False
    for view, found in sizes.items():
        growth = median(found[-quarter:]) / median(found[quarter : 2 * quarter])
        print(f"{view}: {found[0]:.1f} MB at first, {found[-1]:.1f} MB in the end, last to second quarter {growth:.2f}")
        worse = worse or growth > MOST_GROWTH
    sys.exit(int(worse))


def measure(seconds: float, every: float) -> dict[str, list[float]]:
    """Return the sizes of the pages' memory, in MB, by view."""
    sizes: dict[str, list[float]] = {view: [] for view in VIEWS}
    flags = ("--cells", str(CELLS), "--vms", str(VMS), "--rate", str(RATE))
    with (
        tempfile.TemporaryDirectory() as folder,
        sync_playwright() as playwright,
        run_console_server(Path(folder) / "server", *flags) as server,
    ):
        browser = launch_browser(playwright)
        with signed_in(browser, server.url, server.token) as (context, first, _):
            pages = {"overview": first, "mci": context.new_page()}
            for view, page in pages.items():
                page.goto(f"{server.url}/#/{view}")
                expect(page.locator(VIEWS[view]).first).to_be_attached(timeout=60_000)
            sessions = {view: context.new_cdp_session(page) for view, page in pages.items()}
            begun, seq = time.monotonic(), first.evaluate(SEQ)
            while (passed := time.monotonic() - begun) < seconds or not any(sizes.values()):
                time.sleep(every)
                for view, session in sessions.items():
                    sizes[view].append(heap_mb(session))
                rate = (first.evaluate(SEQ) - seq) / (time.monotonic() - begun)
                found = ", ".join(f"{view} {some[-1]:.1f} MB" for view, some in sizes.items())
                print(f"{passed + every:6.0f} s: {found}; {rate:.0f} journal entries/s", flush=True)
        browser.close()
    return sizes


if __name__ == "__main__":
    main()
