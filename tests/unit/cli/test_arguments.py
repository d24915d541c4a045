import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.client.arguments import (
    ObjectRef,
    ObjectSelector,
    full_kind,
    is_kind_named,
    parse_pairs,
    parse_ref,
    parse_selector,
    parse_values,
)
from stateward.errors import BadInput, UnknownName

words = st.text(st.characters(exclude_characters="/=,", exclude_categories=["Cs"]), min_size=1)


@given(words)
def test_an_id_alone_names_an_object_of_any_kind(id_: str) -> None:
    assert parse_ref(id_) == ObjectRef(id_)


@given(words, words)
def test_a_kind_may_stand_before_the_id(kind: str, id_: str) -> None:
    assert parse_ref(f"{kind}/{id_}") == ObjectRef(id_, kind)
    assert str(parse_ref(f"{kind}/{id_}")) == f"{kind}/{id_}"


@pytest.mark.parametrize("text", ["", "/", "vm/", "/m1", "mci/vm/m1"])
def test_half_a_name_is_refused_and_so_is_more_than_one(text: str) -> None:
    with pytest.raises(BadInput, match="id"):
        parse_ref(text)


def test_the_name_of_an_instance_in_commands_of_edge_leads_to_its_id() -> None:
    with pytest.raises(BadInput, match="munich:c1:web"):
        parse_ref("munich/c1/web")


def test_a_kind_goes_by_its_full_name_and_by_its_last_part() -> None:
    assert is_kind_named("mci.vm", "mci.vm")
    assert is_kind_named("mci.vm", "vm")
    assert not is_kind_named("mci.vm", "m")
    assert not is_kind_named("mci.vm", "ovc.vm")


def test_a_short_kind_that_could_be_several_must_be_said_in_full() -> None:
    with pytest.raises(BadInput, match=r"mci\.vm, ovc\.vm"):
        full_kind("vm", ["mci.vm", "ovc.vm", "mci.mci"])
    assert full_kind("mci", ["mci.vm", "ovc.vm", "mci.mci"]) == "mci.mci"


def test_an_unknown_kind_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match=r"did you mean 'mci\.vm'"):
        full_kind("mci.wm", ["mci.vm", "leases.lease"])


@given(st.dictionaries(words, st.text(st.characters(exclude_categories=["Cs"]))))
def test_pairs_read_back_what_was_written(written: dict[str, str]) -> None:
    assert parse_pairs("label", [f"{name}={value}" for name, value in written.items()]) == written


@pytest.mark.parametrize("texts", [["a"], ["=b"], ["a=1", "a=2"]])
def test_what_is_no_pair_or_comes_twice_is_refused(texts: list[str]) -> None:
    with pytest.raises(BadInput, match="label"):
        parse_pairs("label", texts)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)


@given(json_values)
def test_an_argument_that_is_json_is_taken_as_such(value: object) -> None:
    assert parse_values("arg", [f"size={msgspec.json.encode(value).decode()}"]) == {"size": value}


def test_an_argument_that_is_not_json_is_text() -> None:
    assert parse_values("arg", ["name=web 1", "empty="]) == {"name": "web 1", "empty": ""}


def test_a_selector_adds_states_up_and_takes_all_labels() -> None:
    chosen = parse_selector(["kind=vm,state=Running,state=Failed,label=region=eu", "label=csp=aws,parent=m1,q=web"])
    assert chosen == ObjectSelector("vm", "m1", ["Running", "Failed"], {"region": "eu", "csp": "aws"}, "web")


def test_a_selector_leaves_out_what_does_not_matter() -> None:
    assert msgspec.to_builtins(parse_selector(["kind=vm"])) == {"kind": "vm"}


@pytest.mark.parametrize("text", ["kinds=vm", "kind", "kind=a,kind=b", "", "label=x"])
def test_a_selector_that_says_nothing_clear_is_refused(text: str) -> None:
    with pytest.raises((BadInput, UnknownName)):
        parse_selector([text])
