from stateward.access import Grant, Role
from stateward.domains.edge.door import FOREIGN, MOST_REASON, admitted, refusal_of


def agent(*named: str) -> Grant:
    return Grant("0123456789ab", "munich", Role.AGENT, frozenset(named))


def test_an_agent_speaks_for_the_cloudlets_that_its_token_names() -> None:
    assert admitted(agent("lab:munich"), "lab", "munich")
    assert not admitted(agent("lab:munich"), "lab", "berlin")
    assert not admitted(agent("lab:munich"), "other", "munich")
    assert admitted(agent("lab:*"), "lab", "berlin")
    assert not admitted(agent("lab:*"), "other", "berlin")


def test_a_token_of_before_that_names_a_namespace_speaks_for_nothing_and_says_how_to_renew_it() -> None:
    for named in ("lab", "*"):
        assert not admitted(agent(named), "lab", "munich")
        assert refusal_of(agent(named), "lab", "munich").endswith("stateward token create --role agent --ns lab:munich")
    assert refusal_of(agent("lab:berlin"), "lab", "munich") == FOREIGN


def test_the_reason_of_a_refusal_fits_into_the_frame_that_closes_a_connection() -> None:
    assert len(refusal_of(agent("l" * 200), "l" * 200, "m" * 60)) <= MOST_REASON
