"""Declared errors: fields, texts and class options."""

import pickle

import pytest

from stateward.engine import Denied
from stateward.errors import StatewardError


class ClusterNotReady(Denied, code="not_ready", retry=True):
    """A declared error."""

    cluster: str
    state: str = "Creating"
    text = "cluster {cluster!r} is {state}, and has to be Ready"


class StillUsed(Denied, code="in_use"):
    """An error with a list."""

    what: str
    by: list[str]
    text = "{what} is in use by {by}"


class StillUsedHere(StillUsed):
    """An error with one field more than its base."""

    where: str
    text = "{what} is in use by {by} in {where}"


class Pending(StatewardError):
    """An error whose fields are computed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.minutes = seconds / 60

    def __str__(self) -> str:
        return f"{self.minutes:g} min to go"


def test_fields_are_given_in_order_or_by_name_and_may_have_defaults() -> None:
    expected = {"cluster": "k8s", "state": "Creating"}
    assert ClusterNotReady("k8s").facts() == ClusterNotReady(cluster="k8s").facts() == expected
    assert ClusterNotReady("k8s", "Gone").state == "Gone"


def test_the_text_is_built_from_the_fields() -> None:
    assert str(ClusterNotReady("k8s")) == "cluster 'k8s' is Creating, and has to be Ready"
    assert str(StillUsed("flavor small", ["a", "b"])) == "flavor small is in use by a, b"


def test_the_class_says_its_code_and_whether_to_retry() -> None:
    assert (ClusterNotReady.code, ClusterNotReady.retry) == ("not_ready", True)
    assert (StillUsed.code, StillUsed.retry, Denied.code) == ("in_use", False, "denied")
    assert (StillUsedHere.code, StillUsedHere.retry) == ("in_use", False)


def test_a_derived_error_has_the_fields_of_its_base_first() -> None:
    error = StillUsedHere("flavor small", ["a"], "lab")
    assert error.facts() == {"what": "flavor small", "by": ["a"], "where": "lab"}
    assert str(error) == "flavor small is in use by a in lab"
    assert StillUsed("flavor small", ["a"]).facts() == {"what": "flavor small", "by": ["a"]}


def test_text_in_braces_is_not_formatted_again() -> None:
    assert str(ClusterNotReady("{state}")) == "cluster '{state}' is Creating, and has to be Ready"


def test_a_declared_error_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(ClusterNotReady("k8s", "Gone")))
    assert (type(error), error.facts()) == (ClusterNotReady, {"cluster": "k8s", "state": "Gone"})


def test_an_error_may_compute_its_fields_itself() -> None:
    error = Pending(90.0)
    assert (str(error), error.facts()) == ("1.5 min to go", {"minutes": 1.5})


@pytest.mark.parametrize(
    ("given", "named", "message"),
    [
        ((), {}, "needs cluster"),
        (("k8s", "Gone", 3), {}, "has 2 fields, but 3 values"),
        (("k8s",), {"cluster": "other"}, "a field twice: cluster"),
        (("k8s",), {"colour": "red"}, "an unknown field"),
    ],
)
def test_wrong_fields_are_an_error_of_the_program(given: tuple[str, ...], named: dict[str, str], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        ClusterNotReady(*given, **named)
