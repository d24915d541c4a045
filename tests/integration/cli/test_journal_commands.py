"""The journal: watch, history; and why, which explains what an object waits for."""

import json
import threading
from itertools import count

from stateward.engine import Permanent
from stateward.store.filters import Selector
from tests.integration.cli.cli_server import CliServer


def last(cli: CliServer) -> int:
    return cli.ask(cli.engine.store.reader.last_journal_seq())


def test_watch_tells_what_has_happened_since_a_number(cli: CliServer) -> None:
    before = last(cli)
    cli.built("p1")
    done = cli.run("watch", "--after", str(before), "--count", "2")
    assert done.exit_code == 0, done.output
    first, second = done.stdout.splitlines()
    assert "p1 build (new) -> building by user" in first
    assert "p1 succeeded building -> idle" in second


def test_watch_as_json_is_one_line_each(cli: CliServer) -> None:
    before = last(cli)
    cli.built("p1")
    done = cli.run("watch", "--after", str(before), "--count", "2", "--json")
    assert [json.loads(line)["event"] for line in done.stdout.splitlines()] == ["build", "succeeded"]


def test_watch_shows_one_object_one_kind_and_one_namespace_only(cli: CliServer) -> None:
    before = last(cli)
    cli.built("p1")
    cli.run("create", "station", "s1")
    cli.built("p2")
    cli.ns, mine = "elsewhere", cli.ns
    cli.built(f"other-than-{mine}")
    cli.ns = mine
    cli.run("do", "tune", "p1", "--wait")

    def watched(*words: str) -> list[str]:
        done = cli.run("watch", *words, "--after", str(before), "--json")
        return [json.loads(line)["object"] for line in done.stdout.splitlines()]

    assert watched("pump/p1", "--count", "4") == ["p1"] * 4
    assert watched("--kind", "station", "--count", "1") == ["s1"]
    assert watched("--count", "7") == ["p1", "p1", "s1", "p2", "p2", "p1", "p1"]
    assert f"other-than-{mine}" in watched("-A", "--count", "7")


def test_watch_without_a_number_begins_now_and_goes_on_live(cli: CliServer) -> None:
    cli.built("p0")
    done = []
    watching = threading.Thread(target=lambda: done.append(cli.run("watch", "--count", "2", "--json")))
    watching.start()
    # A line that comes before the stream is open is not seen: so they come until two were.
    for number in count(1):
        cli.built(f"p{number}")
        watching.join(0.1)
        if not watching.is_alive():
            break
    seen = [json.loads(line) for line in done[0].stdout.splitlines()]
    assert len(seen) == 2
    assert all(one["object"] != "p0" for one in seen)


def test_watching_an_unknown_object_exits_with_2(cli: CliServer) -> None:
    assert cli.run("watch", "p9").exit_code == 2


def test_history_tells_who_what_from_to_and_why(cli: CliServer) -> None:
    cli.built("p1")
    cli.do(lambda: cli.plant.fail("tune", Permanent("no tools")))
    cli.run("do", "tune", "p1", "--wait")
    lines = cli.run("history", "pump/p1").stdout.splitlines()
    assert len(lines) == 5
    assert "admin (the test)" in lines[3]
    assert "no tools" in lines[4]
    told = cli.json("history", "p1", "--limit", "1")
    assert [(one["event"], one["source"], one["target"]) for one in told] == [("failed", "tuning", "idle")]


def test_a_removed_object_keeps_its_history(cli: CliServer) -> None:
    cli.built("p1")
    cli.run("do", "scrap", "p1", "--wait")
    cli.run("do", "forget", "p1")
    assert cli.run("get", "p1").exit_code == 2
    assert [one["event"] for one in cli.json("history", "p1")][-1] == "forget"


def test_history_of_what_never_was_exits_with_2(cli: CliServer) -> None:
    assert cli.run("history", "p9").exit_code == 2


def test_why_says_that_nothing_is_waited_for(cli: CliServer) -> None:
    cli.built("p1")
    shown = cli.run("why", "pump/p1").stdout
    assert "p1 (test.pump) is idle" in shown
    assert "waits for nothing" in shown


def test_why_names_the_lane_that_is_full(cli: CliServer) -> None:
    cli.built("p1")
    lane = cli.routed("p1", capacity=0)
    cli.run("do", "tune", "p1")
    shown = cli.run("why", "p1").stdout
    assert f"lane {lane} runs 0 of 0 operations" in shown
    assert "tune by admin (the test)" in shown
    assert cli.json("why", "p1")[0]["reason"] == "lane full"


def test_why_names_what_stands_before_it_in_the_queue(cli: CliServer) -> None:
    async def same_queue() -> None:
        made = await cli.engine.create(cli.ns, "disk", "test.pump", "build", queue="p1")
        await cli.engine.wait_record(cli.ns, made.op.id, 120)

    cli.built("p1")
    cli.ask(same_queue())
    cli.do(cli.plant.hold)
    first = cli.json("do", "tune", "p1")[0]["operation"]["id"]
    cli.run("do", "tune", "disk")
    shown = cli.run("why", "disk").stdout
    assert "1 ahead in its queue" in shown
    assert f"tune on p1 ({first})" in shown


def test_why_goes_on_up_the_tree(cli: CliServer) -> None:
    cli.run("create", "station", "s1")
    cli.built("p1", parent="s1")
    lane = cli.routed("p1", capacity=0)
    engine = cli.engine
    whole, each = engine.request(cli.ns, "s1", "pump"), engine.request(cli.ns, "", "pump")
    cli.ask(engine.group(whole, Selector(cli.ns, parent="s1"), each))
    shown = cli.run("why", "p1").stdout
    assert f"lane {lane} runs 0 of 0" in shown
    assert "part of s1 (test.station), which is working" in shown
    assert "it waits for 1 child" in shown
    assert "pump on p1" in cli.run("why", "s1").stdout
    assert [one["id"] for one in cli.json("why", "p1")] == ["p1", "s1"]
