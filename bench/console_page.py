"""The console in a real browser: first useful paint, a large MCI, frames of a fleet in motion, the server, the memory.

A server (the real application on a real store) changes the states of a fleet; Chromium shows it. The cost of a frame is
printed with the profile of the page's scripts. An hour of traffic is fed into the page as fast as possible; the page's
memory in the end is compared with that after the first tenth.
"""

import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, CDPSession, Page, expect, sync_playwright

from bench.figures import Better, Line, plain, ratio
from tests.console.browser import launch_browser, signed_in
from tests.console.sample_objects import LARGE_MCI
from tests.console.server_process import ConsoleServer, run_console_server

CELLS, RATE, SECONDS, CONSOLES = 50_000, 200, 10.0, 4
HOUR, BATCH, FLEET = 3_600 * RATE, 500, 5_000
VMS = 10_000
PATIENT = 180_000
VISITS = 3
"""How often a page is opened; the fastest visit counts, since others use the machine, too."""

MAX_PAINT_MS, MAX_MCI_MS, MAX_NODES = 1_000, 1_500, 5_000
AWAITED = """() => new Promise((resolve) => {{
  const look = () => ({0}) ? resolve({0}) : requestAnimationFrame(look);
  look();
}})"""
BARE = "<!doctype html><title>bare</title><p>Hello</p>"
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
FIGURES = "document.querySelector('.number b') && performance.now()"
SUBGROUPS = f"document.querySelector('[data-mci={LARGE_MCI}] .groups li') && performance.now()"
TOP = 6
"""How many functions of a profile are printed."""

LOADED = "canvas[data-loaded]"
SEQ = "import('/console/core/store.js').then((one) => one.store.seq)"
FRAMES = """(seconds) => new Promise((resolve) => {
  const times = [];
  const begun = performance.now();
  const frame = (now) => {
    times.push(now);
    if (now - begun < seconds * 1000) requestAnimationFrame(frame);
    else resolve(times);
  };
  requestAnimationFrame(frame);
})"""
TRAFFIC = """async ({lines, batch, cells}) => {
  const {store, takeEntries} = await import("/console/core/store.js");
  const states = ["Running", "Suspending", "Suspended", "Resuming"];
  const at = new Date().toISOString();
  let seq = store.seq;
  for (let done = 0; done < lines; done += batch) {
    const turn = Math.floor(done / cells) % 4;
    const news = [];
    for (let number = 0; number < batch; number += 1) {
      const name = `vm-${String((done + number) % cells).padStart(5, "0")}`;
      seq += 1;
      news.push({seq, ns: "fleet", object: name, kind: "mci.vm", op: `op-${seq}`, at, actor: "user", who: "bench",
        event: "x", source: states[turn], target: states[(turn + 1) % 4], reason: null, spec: null});
    }
    takeEntries(news, seq);
    await new Promise((resolve) => requestAnimationFrame(resolve));
  }
}"""


def figures() -> list[Line]:
    """Measure all of it, and return the figures."""
    expect.set_options(timeout=PATIENT)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = launch_browser(playwright)
        with run_console_server(Path(folder) / "lively", "--cells", str(CELLS), "--rate", str(RATE)) as server:
            lines = [*_paint(browser, server), *_frames(browser, server), *_server(browser, server)]
        with run_console_server(Path(folder) / "large", "--vms", str(VMS)) as server:
            lines += _large_mci(browser, server)
        with run_console_server(Path(folder) / "still", "--cells", str(FLEET)) as server:
            lines += _memory(browser, server)
        browser.close()
    busy = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    return [*lines, _line("load of the machine, 1, 5, 15 min", f"{busy} on {os.cpu_count()} processors")]


def _line(name: str, value: str) -> str:
    return f"  {name:<40} {value}"


def _paint(browser: Browser, server: ConsoleServer) -> Iterator[Line]:
    """Measure how soon something, and everything, is seen; the second visit is that of a browser that knows us."""
    with signed_in(browser, server.url, server.token) as (_, page, _):
        for visit in ("first", "second"):
            begun = time.monotonic()
            page.goto(server.url)
            expect(page.locator(LOADED)).to_be_attached()
            whole = time.monotonic() - begun
            first = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
            yield plain(f"{visit} visit of the console, first paint", first, "ms")
            yield plain(f"{visit} visit of the console, all {CELLS:,} cells", whole * 1000, "ms")
        useful, bare = _shown_after(page, server.url, FIGURES), _bare(page, server)
    name = f"first useful paint, {CELLS:,} objects: the figures of the overview"
    yield plain(name, useful, "ms", MAX_PAINT_MS)
    yield ratio(name, useful / bare, "the first paint of a bare page")


def _large_mci(browser: Browser, server: ConsoleServer) -> Iterator[Line]:
    """Measure the page of a large MCI: its status, its states and its subgroups."""
    with signed_in(browser, server.url, server.token) as (_, page, _):
        shown, bare = _shown_after(page, f"{server.url}/#/mci", SUBGROUPS), _bare(page, server)
        page.goto(f"{server.url}/#/mci")
        expect(page.locator(f"[data-mci={LARGE_MCI}] .status-text")).to_contain_text(f"/{VMS})")
        nodes = page.evaluate("document.querySelectorAll('*').length")
    yield plain(f"the page of an MCI of {VMS:,} VMs", shown, "ms", MAX_MCI_MS)
    yield ratio(f"the page of an MCI of {VMS:,} VMs", shown / bare, "the first paint of a bare page")
    yield plain(f"the page of an MCI of {VMS:,} VMs", nodes, "elements", MAX_NODES)


def _bare(page: Page, server: ConsoleServer) -> float:
    """Return after how many milliseconds a page without anything is painted."""
    url = f"{server.url}/bare"
    page.route(url, lambda route: route.fulfill(body=BARE, content_type="text/html"))
    return _shown_after(page, url, PAINTED)


def _shown_after(page: Page, url: str, condition: str) -> float:
    """Return after how many milliseconds of a visit a condition gave a time, at best."""
    times = []
    for _ in range(VISITS):
        page.goto("about:blank")
        page.goto(url, wait_until="commit")
        times.append(float(page.evaluate(AWAITED.format(condition))))
    return min(times)


# --- frames ----------------------------------------------------------------------------------------------------------


def _frames(browser: Browser, server: ConsoleServer) -> Iterator[Line]:
    """Measure frames while cells move."""
    with signed_in(browser, server.url, server.token) as (context, page, _):
        expect(page.locator(LOADED)).to_be_attached()
        session = context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})  # others on the machine do not count
        session.send("Profiler.enable")
        before, seq = _costs(session), page.evaluate(SEQ)
        times: list[float] = page.evaluate(FRAMES, SECONDS)
        after, last = _costs(session), page.evaluate(SEQ)
        session.send("Profiler.start")
        page.evaluate(FRAMES, SECONDS / 2)
        profile = session.send("Profiler.stop")["profile"]
    gaps = sorted(later - sooner for sooner, later in pairwise(times))
    took = (times[-1] - times[0]) / 1000
    yield _line(f"{CELLS:,} cells", f"{(last - seq) / took:.0f} journal lines/s seen ({RATE} transitions/s asked for)")
    yield plain(f"frames, {CELLS:,} cells in motion", len(gaps) / took, "a second", None, Better.HIGHER)
    yield plain("the slowest frame of a hundred", gaps[int(len(gaps) * 0.99)], "ms")
    each = {name: (after[name] - before[name]) / len(times) * 1000 for name in after}
    yield _line(
        "processor's cost of a frame", ", ".join(f"{_short(name)} {cost:.2f} ms" for name, cost in each.items())
    )
    yield _line("profile of the scripts", ", ".join(_profile(profile)))


def _short(metric: str) -> str:
    return metric.removesuffix("Duration").lower()


def _costs(session: CDPSession) -> dict[str, float]:
    """Return what the page's main thread has spent so far, in seconds."""
    wanted = ("TaskDuration", "ScriptDuration", "LayoutDuration", "RecalcStyleDuration")
    found: list[Any] = session.send("Performance.getMetrics")["metrics"]
    return {one["name"]: one["value"] for one in found if one["name"] in wanted}


def _profile(profile: dict[str, Any]) -> Iterator[str]:
    """Return where the scripts' time went: functions by their own time."""
    frames = {one["id"]: one["callFrame"] for one in profile["nodes"]}
    spent: Counter[str] = Counter()
    for node, microseconds in zip(profile["samples"], profile["timeDeltas"], strict=True):
        frame = frames[node]
        if "/console/" in frame["url"] or frame["functionName"] == "(garbage collector)":
            name = frame["functionName"] or "(anonymous)"
            spent[f"{name} {frame['url'].rpartition('/')[2]}".strip()] += microseconds
    whole = sum(spent.values()) or 1
    return (f"{name} {cost / whole:.0%}" for name, cost in spent.most_common(TOP))


# --- the server ------------------------------------------------------------------------------------------------------


def _server(browser: Browser, server: ConsoleServer) -> Iterator[Line]:
    """Measure what open consoles cost the server: overviews of the whole fleet, fed by the stream."""
    alone, before = _used(server)
    with signed_in(browser, server.url, server.token) as (context, first, _):
        pages: list[Page] = [first, *(context.new_page() for _ in range(CONSOLES - 1))]
        for page in pages:
            page.goto(f"{server.url}/#/overview")
            expect(page.locator(LOADED)).to_be_attached()
        watched, after = _used(server)
    each = (watched / after - alone / before) / CONSOLES
    cost = watched / after / (alone / before)
    yield ratio(f"a journal line, {CONSOLES} consoles open", cost, "the server's processor time with none")
    yield plain(f"a console at {RATE} journal lines a second", each * RATE * 100, "% of the server's processor")


def _used(server: ConsoleServer) -> tuple[float, int]:
    """Return how many seconds of a processor a server uses for some time, and how many lines of the journal it writes.

    A busy machine moves the fleet more slowly: only what a line costs can be compared.
    """
    begun, first = _ticks(server.process.pid), _seq(server)
    time.sleep(SECONDS)
    return (_ticks(server.process.pid) - begun) / os.sysconf("SC_CLK_TCK"), max(1, _seq(server) - first)


def _seq(server: ConsoleServer) -> int:
    headers = {"Authorization": f"Bearer {server.token}"}
    text = httpx.get(f"{server.url}/metrics", headers=headers, timeout=60, trust_env=False).text
    return int(float(re.findall(r"^stateward_journal_seq\S* (\S+)", text, re.MULTILINE)[-1]))


def _ticks(pid: int) -> int:
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(parts[11]) + int(parts[12])


# --- memory ----------------------------------------------------------------------------------------------------------


def _memory(browser: Browser, server: ConsoleServer) -> Iterator[Line]:
    """Measure the page's memory over an hour of traffic."""
    with signed_in(browser, server.url, server.token) as (context, page, _):
        context.set_default_timeout(0)
        expect(page.locator(LOADED)).to_be_attached()
        session = context.new_cdp_session(page)
        page.evaluate(TRAFFIC, {"lines": HOUR // 10, "batch": BATCH, "cells": FLEET})
        early = heap_mb(session)
        page.evaluate(TRAFFIC, {"lines": HOUR - HOUR // 10, "batch": BATCH, "cells": FLEET})
        late = heap_mb(session)
    yield ratio(f"memory of the page after {HOUR:,} transitions", late / early, "that after a tenth of them")
    yield plain(f"memory of the page after {HOUR:,} transitions", late, "MB")


def heap_mb(session: CDPSession) -> float:
    """Return what the page's memory holds after all rubbish is taken out, in MB."""
    session.send("HeapProfiler.enable")
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"]) / 1e6
