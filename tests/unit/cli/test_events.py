from hypothesis import given
from hypothesis import strategies as st

from stateward.client.events import Event, events

line = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1)
told = st.builds(Event, name=line, data=st.lists(line, min_size=1).map("\n".join), id=line)


def written(event: Event) -> list[str]:
    data = [f"data: {one}" for one in event.data.split("\n")]
    return [f"id: {event.id}", f"event: {event.name}", *data, ""]


@given(st.lists(told))
def test_what_was_written_is_read(several: list[Event]) -> None:
    assert list(events(text for event in several for text in written(event))) == several


def test_comments_and_unknown_fields_say_nothing() -> None:
    assert list(events([": ping", "", "retry: 3", "data:x", ""])) == [Event("message", "x")]


def test_an_event_that_was_cut_off_is_none() -> None:
    assert list(events(["data: whole", "", "data: half"])) == [Event("message", "whole")]
