"""What engines send, in any shape: it is decoded, or it is an error that says so."""

import struct
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.containers import EngineEvent, EngineRefused, EngineUnavailable, LogStream, PullProgress
from stateward.containers import engine_wire as wire
from stateward.containers.engine_images import parse_progress
from stateward.containers.engine_output import BadFrame, FrameDecoder, parse_events
from stateward.containers.engine_transport import refusal
from stateward.containers.json_lines import MAX_LINE_BYTES, BadLine, LineSplitter

FRAMES = st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut bytes at some places."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


@given(FRAMES, st.lists(st.integers(0, 1000), max_size=20))
def test_frames_are_the_same_however_they_are_cut(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    data = b"".join(struct.pack(">BxxxL", number, len(content)) + content for number, content in frames)
    decoder = FrameDecoder()
    chunks = [chunk for piece in pieces_of(data, cuts) for chunk in decoder.feed(piece)]
    for number, stream in ((1, LogStream.STDOUT), (2, LogStream.STDERR)):
        written = b"".join(content for one, content in frames if one == number)
        assert b"".join(chunk.data for chunk in chunks if chunk.stream is stream) == written


@given(st.lists(st.binary(max_size=60), max_size=10))
def test_any_bytes_are_frames_or_a_bad_frame(pieces: list[bytes]) -> None:
    decoder, passed = FrameDecoder(), 0
    try:
        for piece in pieces:
            passed += sum(len(chunk.data) for chunk in decoder.feed(piece))
    except BadFrame:
        return
    assert passed <= sum(map(len, pieces))


def test_a_frame_of_four_gigabytes_is_not_collected() -> None:
    decoder = FrameDecoder()
    assert list(decoder.feed(struct.pack(">BxxxL", 1, 0xFFFFFFFF))) == []
    assert [len(chunk.data) for chunk in decoder.feed(b"x" * 1000)] == [1000]


@given(st.binary(max_size=200), st.lists(st.integers(0, 1000), max_size=10))
def test_lines_are_the_same_however_they_are_cut(data: bytes, cuts: list[int]) -> None:
    splitter = LineSplitter()
    lines = [line for piece in pieces_of(data, cuts) for line in splitter.feed(piece)]
    assert [*lines, splitter.rest()] == [
        *(line for line in data.split(b"\n")[:-1] if line.strip()),
        data.split(b"\n")[-1].strip(),
    ]


def test_a_line_without_end_is_refused() -> None:
    splitter = LineSplitter()
    assert list(splitter.feed(b"x" * MAX_LINE_BYTES)) == []
    with pytest.raises(BadLine):
        list(splitter.feed(b"x"))


@given(st.binary(max_size=100) | JSON.map(msgspec.json.encode))
def test_any_progress_is_a_report_or_an_error(line: bytes) -> None:
    try:
        assert isinstance(parse_progress("pull", line), PullProgress)
    except (EngineRefused, EngineUnavailable):
        return


@given(st.binary(max_size=100) | JSON.map(msgspec.json.encode))
def test_any_event_is_a_hint_or_an_error(line: bytes) -> None:
    try:
        assert all(isinstance(one, EngineEvent) for one in parse_events("watch", LineSplitter(), line + b"\n"))
    except EngineUnavailable:
        return


@given(st.integers(300, 599), st.binary(max_size=100) | JSON.map(msgspec.json.encode))
def test_any_refusal_has_a_reason(status: int, content: bytes) -> None:
    assert str(refusal("call", status, content).reason)


@given(st.text(max_size=40))
def test_any_time_is_seconds_or_none(text: str) -> None:
    found = wire.seconds_of(text)
    assert found is None or isinstance(found, float)


def test_times_of_engines() -> None:
    assert wire.seconds_of("1970-01-01T00:00:01.500000000Z") == 1.5
    assert wire.seconds_of("1970-01-01T01:00:01.123456789+01:00") == pytest.approx(1.123456)
    assert wire.seconds_of("0001-01-01T00:00:00Z") is None


def test_a_listing_of_docker_is_read() -> None:
    """As Docker 27 writes it, where Podman's differs."""
    listed = wire.ListedContainer(
        "id",
        names=["/web", "/other/alias"],
        image="nginx",
        image_i_d="sha256:1",
        state="exited",
        status="Exited (137) 3 minutes ago",
        ports=[wire.PortJson(80), wire.PortJson(80, 8080, "0.0.0.0", "tcp")],
    )
    record = wire.listed_record(listed)
    assert (record.name, record.exit_code, [port.host_port for port in record.ports]) == ("web", 137, [8080])
    assert (record.image, record.image_id) == ("nginx", "sha256:1")
