import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stateward.domains.mci.guards.spec_validation import MAX_VMS, check_mci_spec
from stateward.domains.mci.guards.subgroups import SCALE_DIRECTIONS, with_scaled_spec
from stateward.domains.mci.lifecycle import MCI
from stateward.domains.mci.model import MciSpec, SubGroup
from stateward.engine import Request
from stateward.errors import BadInput
from stateward.store.records import Object, to_json

WEB, DB = SubGroup("web", 3, "s", "i"), SubGroup("db", 1, "s", "i")
SHOP = MciSpec("shop", "uid-shop", (WEB, DB))


def record(mci: MciSpec = SHOP) -> Object:
    return Object("ns", mci.name, MCI.kind, "Running", 0.0, 1, 0, None, mci.name, None, to_json(mci), "{}", None, 0.0)


def asked(action: str = "scale out", args: object = None, spec: MciSpec | None = None) -> Request:
    text_of = "{}" if args is None else msgspec.json.encode(args).decode()
    return Request("ns", "shop", action, "op", args=text_of, spec=None if spec is None else to_json(spec))


def after(request: Request) -> MciSpec:
    assert request.spec is not None
    return msgspec.json.decode(request.spec, type=MciSpec)


@given(st.sampled_from(sorted(SCALE_DIRECTIONS)), st.sampled_from([WEB, DB]), st.integers(1, 10_000))
def test_the_record_follows_from_the_arguments(action: str, group: SubGroup, count: int) -> None:
    want = after(with_scaled_spec(asked(action, {"group": group.name, "count": count}), record()))
    sizes = {one.name: one.size for one in SHOP.groups}
    sizes[group.name] = max(0, group.size + SCALE_DIRECTIONS[action] * count)
    assert {one.name: one.size for one in want.groups} == sizes
    assert replace(want, groups=()) == replace(SHOP, groups=())


@pytest.mark.parametrize("action", SCALE_DIRECTIONS)
@pytest.mark.parametrize(
    ("args", "field"),
    [
        (None, "args.group"),
        ({"group": "web"}, "args.count"),
        ({"count": 1}, "args.group"),
        ({"group": "web", "count": "two"}, "args.count"),
        ({"group": "web", "count": 0}, "args.count"),
        ({"group": "web", "count": -1}, "args.count"),
        ({"group": "web", "count": MAX_VMS + 1}, "args.count"),
        ({"group": "cache", "count": 1}, "args.group"),
    ],
)
def test_a_scaling_that_does_not_say_how_is_refused_with_field_and_state(action: str, args: object, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        with_scaled_spec(asked(action, args), record())
    assert (refused.value.field, refused.value.state) == (field, "Running")
    assert "which is Running" in refused.value.allowed


def test_a_refusal_names_the_subgroups_there_are() -> None:
    with pytest.raises(BadInput, match="has web, db"):
        with_scaled_spec(asked(args={"group": "cache", "count": 1}), record())


def test_a_new_subgroup_comes_along_with_the_record() -> None:
    cache = SubGroup("cache", 2, "s", "i")
    wanted = replace(SHOP, groups=(WEB, DB, cache))
    assert after(with_scaled_spec(asked(args={"group": "cache", "count": 2}, spec=wanted), record())) == wanted


@pytest.mark.parametrize(
    "wrong",
    [
        replace(SHOP, groups=(replace(WEB, size=4), replace(DB, size=9))),
        replace(SHOP, groups=(WEB, DB)),
        replace(SHOP, groups=(replace(WEB, size=4), DB), policy="rollback"),
        replace(SHOP, groups=(replace(WEB, size=4, image="other"), DB)),
    ],
)
def test_a_record_that_changes_anything_else_is_refused(wrong: MciSpec) -> None:
    with pytest.raises(BadInput) as refused:
        with_scaled_spec(asked(args={"group": "web", "count": 1}, spec=wrong), record())
    assert (refused.value.field, refused.value.state) == ("spec", "Running")


@pytest.mark.parametrize("name", ["", "a/b", "Cache", "a.b", "9", "a b", "x" * 101])
def test_a_new_subgroup_whose_vms_could_not_be_found_again_is_refused(name: str) -> None:
    wanted = replace(SHOP, groups=(WEB, DB, SubGroup(name, 2, "s", "i")))
    with pytest.raises(BadInput) as refused:
        with_scaled_spec(asked(args={"group": name, "count": 2}, spec=wanted), record())
    assert (refused.value.field, refused.value.state) == ("spec.groups[0].name", "Running")


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (replace(SHOP, name="a.b"), "spec.name"),
        (replace(SHOP, name="a/b"), "spec.name"),
        (replace(SHOP, groups=()), "spec.groups"),
        (replace(SHOP, groups=(WEB, WEB)), "spec.groups"),
        (replace(SHOP, groups=(WEB, replace(DB, size=0))), "spec.groups[1].size"),
        (replace(SHOP, groups=(WEB, replace(DB, size=-2))), "spec.groups[1].size"),
        (replace(SHOP, groups=(WEB, replace(DB, size=MAX_VMS))), "spec.groups"),
        (replace(SHOP, groups=(WEB, replace(DB, name="d/b"))), "spec.groups[1].name"),
    ],
)
def test_an_mci_that_could_not_be_made_or_handled_is_refused_with_the_field(wrong: MciSpec, field: str) -> None:
    check_mci_spec(SHOP)
    with pytest.raises(BadInput) as refused:
        check_mci_spec(wrong)
    assert refused.value.field == field
