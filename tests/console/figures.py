"""What the console costs: `python -m tests.console.figures [--cells 50000] [--rate 200] [--seconds 10]`.

First paint; frames a second with many cells in motion, with the cost of a frame; what an open console costs the server;
and the page's memory after an hour of such traffic, played as fast as the page takes it.
"""

import argparse
import os
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page, expect, sync_playwright

from tests.console.browser import launched, signed_in
from tests.console.processes import Played, played

LOADED = "canvas[data-loaded]"
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
HOUR = """async ({lines, batch, cells}) => {
  const {store, takeLines} = await import("/console/store.js");
  const kinds = ["Running", "Suspending", "Suspended", "Resuming"];
  const at = new Date().toISOString();
  let seq = store.seq;
  for (let done = 0; done < lines; done += batch) {
    const news = [];
    for (let number = 0; number < batch; number += 1) {
      const turn = Math.floor(done / cells) % 4;
      const name = `vm-${String((done + number) % cells).padStart(5, "0")}`;
      seq += 1;
      news.push({seq, ns: "fleet", object: name, kind: "mci.vm", op: `op-${seq}`, at, actor: "user", who: "figures",
        event: "x", source: kinds[turn], target: kinds[(turn + 1) % 4], reason: null, spec: null});
    }
    takeLines(news, seq);
    await new Promise((resolve) => requestAnimationFrame(resolve));
  }
}"""


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=50_000)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    asked = parser.parse_args()
    expect.set_options(timeout=60_000)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = launched(playwright)
        flags = ("--cells", str(asked.cells), "--rate", str(asked.rate))
        with played(Path(folder) / "lively", *flags) as stage:
            paint(browser, stage)
            frames(browser, stage, asked.seconds, asked.cells, asked.rate)
            server(browser, stage, asked.seconds)
        with played(Path(folder) / "still", "--cells", "5000") as stage:
            memory(browser, stage)
        browser.close()


def say(name: str, value: str) -> None:
    """Print a figure."""
    sys.stdout.write(f"{name:<44} {value}\n")
    sys.stdout.flush()


def paint(browser: Browser, stage: Played) -> None:
    """Measure how soon something, and everything, is seen."""
    with signed_in(browser, stage.url, stage.token) as (_, page, _):
        begun = time.monotonic()
        page.goto(stage.url)
        expect(page.locator(LOADED)).to_be_attached()
        whole = time.monotonic() - begun
        first = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        say("first paint", f"{first:.0f} ms")
        say("the whole fleet on the map", f"{whole * 1000:.0f} ms")


def frames(browser: Browser, stage: Played, seconds: float, cells: int, rate: float) -> None:
    """Measure frames while cells move."""
    with signed_in(browser, stage.url, stage.token) as (context, page, _):
        expect(page.locator(LOADED)).to_be_attached()
        session = context.new_cdp_session(page)
        session.send("Performance.enable")
        before, seq = costs(session), page.evaluate("import('/console/store.js').then((one) => one.store.seq)")
        times: list[float] = page.evaluate(FRAMES, seconds)
        after, last = costs(session), page.evaluate("import('/console/store.js').then((one) => one.store.seq)")
    gaps = sorted(b - a for a, b in pairwise(times))
    say(f"{cells:,} cells, asked for {rate:g} transitions/s", f"{(last - seq) / seconds:.0f} transitions/s seen")
    say("frames", f"{len(gaps) / seconds:.1f} per second; slowest of 100: {gaps[int(len(gaps) * 0.99)]:.0f} ms")
    each = {name: (after[name] - before[name]) / len(times) * 1000 for name in after}
    say(
        "cost of a frame",
        ", ".join(f"{name.removesuffix('Duration').lower()} {cost:.2f} ms" for name, cost in each.items()),
    )


def costs(session: CDPSession) -> dict[str, float]:
    """Return what the page's main thread has spent so far, in seconds."""
    wanted = ("TaskDuration", "ScriptDuration", "LayoutDuration", "RecalcStyleDuration")
    found: list[Any] = session.send("Performance.getMetrics")["metrics"]
    return {one["name"]: one["value"] for one in found if one["name"] in wanted}


def server(browser: Browser, stage: Played, seconds: float, consoles: int = 5) -> None:
    """Measure what open consoles cost the server."""
    alone = used(stage, seconds)
    with signed_in(browser, stage.url, stage.token) as (context, first, _):
        pages: list[Page] = [first, *(context.new_page() for _ in range(consoles - 1))]
        for page in pages:
            page.goto(f"{stage.url}/#/timers")
            expect(page.locator("#live .dot.live")).to_be_visible()
        watched = used(stage, seconds)
    cost = (watched - alone) / consoles
    say("the server's processor", f"{alone:.1%} with no console open, {watched:.1%} with {consoles}: {cost:.2%} each")


def used(stage: Played, seconds: float) -> float:
    """Return which share of a processor a stage uses for some time."""
    begun = _ticks(stage.process.pid)
    time.sleep(seconds)
    return (_ticks(stage.process.pid) - begun) / os.sysconf("SC_CLK_TCK") / seconds


def _ticks(pid: int) -> int:
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(parts[11]) + int(parts[12])


def memory(browser: Browser, stage: Played) -> None:
    """Measure the page's memory over an hour of 200 transitions a second."""
    with signed_in(browser, stage.url, stage.token) as (context, page, _):
        expect(page.locator(LOADED)).to_be_attached()
        session = context.new_cdp_session(page)
        page.evaluate(HOUR, {"lines": 72_000, "batch": 500, "cells": 5_000})
        early = heap(session)
        page.evaluate(HOUR, {"lines": 648_000, "batch": 500, "cells": 5_000})
        late = heap(session)
    say("memory of the page", f"{early:.1f} MB after 6 minutes' traffic, {late:.1f} MB after an hour's (720,000 lines)")


def heap(session: CDPSession) -> float:
    """Return what the page's memory holds after all rubbish is taken out, in MB."""
    session.send("HeapProfiler.enable")
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"]) / 1e6


if __name__ == "__main__":
    main()
