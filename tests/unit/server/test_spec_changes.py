"""Changes of specs: field by field, and secrets never."""

from typing import Any

from msgspec.structs import replace

from stateward.server.routes.object_details import spec_changes
from stateward.store.records import JournalEntry, to_json
from tests.contract.samples import an_entry


def changed(*specs: Any, masked: str = "") -> list[list[tuple[Any, ...]]]:
    """Return the differences between specs; the value of the field `masked` is secret."""

    def pair(spec: Any) -> tuple[JournalEntry, JournalEntry]:
        shown = {name: "***" if name == masked else value for name, value in spec.items()}
        return an_entry(spec=to_json(spec)), an_entry(spec=to_json(shown))

    found = spec_changes(pair(one) for one in specs)
    return [[(one.field, one.how, one.before, one.after) for one in change.fields] for change in found]


def test_fields_are_added_removed_and_changed() -> None:
    assert changed({"size": 1, "zone": "a"}, {"size": 2, "name": "x"}) == [
        [("size", "changed", 1, 2), ("zone", "removed", "a", None), ("name", "added", None, "x")]
    ]


def test_a_nested_field_is_named_by_its_path() -> None:
    before, after = {"disks": [{"size": 1}, {"size": 2}], "tags": {}}, {"disks": [{"size": 9}], "tags": {"a": None}}
    assert changed(before, after) == [
        [
            ("disks[0].size", "changed", 1, 9),
            ("disks[1].size", "removed", 2, None),
            ("tags", "removed", {}, None),
            ("tags.a", "added", None, None),
        ]
    ]


def test_a_secret_is_told_to_differ_and_not_how() -> None:
    assert changed({"password": "old"}, {"password": "new"}, {"password": "new"}, masked="password") == [
        [("password", "changed", "***", "***")]
    ]


def test_entries_without_a_spec_change_nothing_and_the_version_of_a_type_is_no_field() -> None:
    entry = an_entry(spec=to_json({"$version": 2, "a": 1}))
    later = replace(entry, spec=to_json({"$version": 3, "a": 1}))
    assert list(spec_changes([(entry, entry), (an_entry(), an_entry()), (later, later)])) == []
