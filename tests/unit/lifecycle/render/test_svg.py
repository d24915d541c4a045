"""A lifecycle as SVG."""

import json
import os
import re
import subprocess
import sys
from itertools import chain, combinations, product
from xml.etree.ElementTree import Element, fromstring

import pytest
from hypothesis import given

from stateward.lifecycle import Lifecycle
from stateward.lifecycle.render import svg
from stateward.lifecycle.render.drawing import LABEL, LINE, draw, text_width
from stateward.lifecycle.render.edges import edges
from stateward.lifecycle.render.svg_markup import STYLE
from stateward.plugin.registry import installed
from tests.unit.lifecycle.render.samples import INSTANCE, MACHINE, any_lifecycle, named

ALL = (MACHINE, INSTANCE, *installed().lifecycles)
each = pytest.mark.parametrize("lifecycle", ALL, ids=lambda one: one.kind)


def groups(lifecycle: Lifecycle, attribute: str) -> list[Element]:
    return [one for one in fromstring(svg(lifecycle)).iter() if attribute in one.attrib]


def group(lifecycle: Lifecycle, name: str) -> Element:
    return next(one for one in groups(lifecycle, "id") if one.attrib["id"] == name)


def tags(one: Element) -> list[str]:
    return [child.tag.rpartition("}")[2] for child in one]


@each
def test_every_state_is_found_by_its_word(lifecycle: Lifecycle) -> None:
    assert {one.attrib["data-state"] for one in groups(lifecycle, "data-state")} == set(lifecycle.states)


@each
def test_every_arrow_is_found_by_its_ends_and_events(lifecycle: Lifecycle) -> None:
    drawn = {
        (*(tuple(json.loads(one.attrib[name])) for name in ("data-sources", "data-targets", "data-events")),)
        for one in groups(lifecycle, "data-events")
    }
    expected: set[tuple[tuple[str, ...], ...]] = set()
    for edge in edges(lifecycle):
        forth, back = ([label.event for label in labels] for labels in (edge.labels, edge.back))
        expected.add((tuple(edge.sources), (edge.target,), tuple(dict.fromkeys(forth))))
        if back:
            expected.add(((edge.target,), tuple(edge.sources), tuple(dict.fromkeys(back))))
    assert drawn == expected


@each
def test_no_two_things_have_one_id(lifecycle: Lifecycle) -> None:
    ids = [one.attrib["id"] for one in groups(lifecycle, "id")]
    assert len(set(ids)) == len(ids)


@each
def test_no_label_lies_on_a_state_or_on_another_label(lifecycle: Lifecycle) -> None:
    drawn = draw(lifecycle)
    states = [(one.at, one.width, one.height) for one in drawn.shapes if one.state is not None]
    labels = [
        (line.words_at, max(text_width(text, LABEL) for text in texts), LINE * len(texts))
        for line in drawn.lines
        if (texts := [*(one.text for one in (*line.along, *line.back)), *line.whence])
    ]
    for (at, width, height), (there, wide, high) in chain(product(labels, states), combinations(labels, 2)):
        assert abs(at.x - there.x) * 2 >= width + wide or abs(at.y - there.y) * 2 >= height + high


@each
def test_labels_lie_on_top_of_all_arrows(lifecycle: Lifecycle) -> None:
    root = fromstring(svg(lifecycle))
    (labels,) = (place for place, one in enumerate(root) if one.attrib.get("class") == "labels")
    arrows = [place for place, one in enumerate(root) if one.attrib.get("class", "").startswith("move ")]
    assert all(place < labels for place in arrows)
    texts = [one.text for one in root[labels].iter() if one.tag.endswith("text")]
    expected = [(*(one.text for one in (*line.along, *line.back)), *line.whence) for line in draw(lifecycle).lines]
    assert sorted(map(str, texts)) == sorted(text for several in expected for text in several)


def test_a_state_is_a_group_with_its_class_its_word_and_what_it_is_about() -> None:
    running = group(MACHINE, "state-Running")
    assert running.attrib["class"] == "state stable"
    assert tags(running) == ["title", "rect", "text", "text"]
    assert running[0].text == "Running: up and reachable"


def test_a_final_state_has_a_doubled_outline_and_a_transitional_one_a_dashed() -> None:
    assert tags(group(MACHINE, "state-Terminated")).count("rect") == 2
    assert group(MACHINE, "state-Creating").attrib["class"] == "state transitional"
    assert ".transitional rect{stroke-dasharray" in STYLE


def test_the_start_is_a_dot_and_the_end_is_a_bulls_eye() -> None:
    assert tags(group(MACHINE, "state-new")) == ["title", "circle"]
    assert tags(group(MACHINE, "state-gone")) == ["title", "circle", "circle"]


def test_a_lifecycle_that_begins_in_a_state_has_a_dot_that_leads_there() -> None:
    root = fromstring(svg(INSTANCE))
    assert [one.attrib.get("class") for one in root if one.attrib.get("class") == "initial"] == ["initial"]


def test_an_arrow_is_a_group_with_its_ends_and_events() -> None:
    suspend = group(MACHINE, "move-Running-Suspending").attrib
    assert suspend["class"] == "move asked"
    assert (suspend["data-source"], suspend["data-target"]) == ("Running", "Suspending")
    assert json.loads(suspend["data-events"]) == ["suspend"]


def test_an_arrow_from_many_states_lists_them() -> None:
    forced = next(one for one in groups(MACHINE, "data-events") if one.attrib["class"] == "move insisted")
    assert "data-source" not in forced.attrib
    assert "Rebooting" in json.loads(forced.attrib["data-sources"])
    texts = [one.text for one in fromstring(svg(MACHINE)).iter() if one.tag.endswith("text")]
    assert texts.index("from any state not final") == texts.index("terminate [force]") + 1


def test_the_way_back_is_a_group_of_its_own() -> None:
    back = group(INSTANCE, "move-Updating-Ready")
    assert back.attrib["class"] == "move back went-on"
    assert json.loads(back.attrib["data-events"]) == ["succeeded", "failed", "timed out"]


@given(any_lifecycle)
def test_any_words_give_a_picture_that_reads_back_the_same(lifecycle: Lifecycle) -> None:
    representable = {
        re.sub("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", one) for one in lifecycle.states
    }
    assert {one.attrib["data-state"] for one in groups(lifecycle, "data-state")} == representable
    ids = [one.attrib["id"] for one in groups(lifecycle, "id")]
    assert len(set(ids)) == len(ids)
    assert not any(re.search(r"\s", one) for one in ids)


def test_words_that_look_like_markup_stay_words() -> None:
    hostile = named(["<script>", '"><g id="x">', "a'b&c", "]]>", "<!--"], ["&lt;", "<b>", '" onload="', "--"])
    root = fromstring(svg(hostile))
    assert not [one for one in root.iter() if one.tag.endswith("script") or "onload" in one.attrib]
    assert {"<script>", '"><g id="x">'} < {one.attrib["data-state"] for one in groups(hostile, "data-state")}


def test_the_picture_says_what_it_is_to_those_who_cannot_see_it() -> None:
    root = fromstring(svg(MACHINE))
    assert root.attrib["role"] == "img"
    assert tags(root)[:2] == ["title", "desc"]
    assert root[0].text == "sample.machine"
    assert "Running" in (root[1].text or "")


@each
def test_the_picture_needs_nothing_from_outside(lifecycle: Lifecycle) -> None:
    drawn = svg(lifecycle).replace('xmlns="http://www.w3.org/2000/svg"', "", 1)
    assert not re.search(r"https?:|url\(|@import|href|<script|<image", drawn)


def test_the_style_is_the_same_for_all_and_touches_nothing_else_on_a_page() -> None:
    assert all(f"<style>{STYLE}</style>" in svg(lifecycle) for lifecycle in ALL)
    selectors = re.findall(r"([^{};]+)\{", STYLE.replace("@media (prefers-color-scheme:dark){", ""))
    assert all(one.strip().startswith(".lifecycle") for selector in selectors for one in selector.split(","))


def test_a_page_can_set_every_colour_and_the_reader_prefers_light_or_dark() -> None:
    assert "@media (prefers-color-scheme:dark)" in STYLE
    assert set(re.findall(r"#[0-9a-f]{6}", STYLE)) == set(re.findall(r"var\(--lifecycle-\w+,(#[0-9a-f]{6})\)", STYLE))


def test_a_lifecycle_is_laid_out_once() -> None:
    assert svg(MACHINE) is svg(MACHINE)


def test_the_picture_is_the_same_on_a_machine_without_fonts_and_nothing_is_said_aside() -> None:
    program = (
        "from stateward.lifecycle.render import svg\n"
        "from tests.unit.lifecycle.render.samples import MACHINE\n"
        "import sys; sys.stdout.write(svg(MACHINE))"
    )
    bare = {**os.environ, "FONTCONFIG_FILE": os.devnull, "HOME": os.devnull, "PYTHONPATH": "."}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=bare, check=True)
    assert run.stdout == svg(MACHINE)
    assert run.stderr == ""
