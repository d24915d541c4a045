from base64 import b64encode

from hypothesis import given
from hypothesis import strategies as st

from stateward.server.auth.credentials import MAX_TOKEN_LENGTH, presented_token, token_id

tokens = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=MAX_TOKEN_LENGTH)
headers = st.lists(st.tuples(st.sampled_from([b"authorization", b"x-auth-token", b"accept"]), st.binary()))


@given(tokens, st.text(max_size=20))
def test_a_token_is_found_whichever_way_it_is_presented(token: str, name: str) -> None:
    user = name.replace(":", "")
    basic = b"Basic " + b64encode(f"{user}:{token}".encode())
    assert presented_token([(b"authorization", b"Bearer " + token.encode())]) == token
    assert presented_token([(b"authorization", basic)]) == token
    assert presented_token([(b"x-auth-token", token.encode())]) == token


@given(headers)
def test_no_header_breaks_the_door(given_: list[tuple[bytes, bytes]]) -> None:
    found = presented_token(given_)
    assert found is None or len(found) <= MAX_TOKEN_LENGTH


def test_the_authorization_header_goes_first_and_another_scheme_is_passed_over() -> None:
    other = (b"x-auth-token", b"other")
    assert presented_token([other, (b"authorization", b"Bearer mine")]) == "mine"
    assert presented_token([(b"authorization", b"Digest x"), other]) == "other"
    assert presented_token([(b"accept", b"*/*")]) is None


def test_what_is_too_long_for_a_token_opens_nothing() -> None:
    assert presented_token([(b"x-auth-token", b"x" * (MAX_TOKEN_LENGTH + 1))]) == ""


def test_only_what_looks_like_our_token_has_an_id() -> None:
    assert token_id("sw_0123456789ab_secret") == "0123456789ab"
    for text in (None, "", "secret", "sw_secret_password", "xsw_0123456789ab_secret"):
        assert token_id(text) is None
