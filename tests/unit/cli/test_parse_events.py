from hypothesis import given
from hypothesis import strategies as st

from stateward.client.progress import ServerSentEvent, parse_events

line = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1)
told = st.builds(ServerSentEvent, name=line, data=st.lists(line, min_size=1).map("\n".join), id=line)


def written(event: ServerSentEvent) -> list[str]:
    data = [f"data: {one}" for one in event.data.split("\n")]
    return [f"id: {event.id}", f"event: {event.name}", *data, ""]


@given(st.lists(told))
def test_what_was_written_is_read(several: list[ServerSentEvent]) -> None:
    assert list(parse_events(text for event in several for text in written(event))) == several


def test_comments_and_unknown_fields_say_nothing() -> None:
    assert list(parse_events([": ping", "", "retry: 3", "data:x", ""])) == [ServerSentEvent("message", "x")]


def test_an_event_that_was_cut_off_is_none() -> None:
    assert list(parse_events(["data: whole", "", "data: half"])) == [ServerSentEvent("message", "whole")]
