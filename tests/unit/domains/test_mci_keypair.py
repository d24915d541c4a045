"""Key pairs of ours are what everybody else takes for key pairs."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from stateward.domains.mci.keypair import new_pair, pair_of, public_half


@settings(max_examples=20, deadline=None)
@given(st.binary(min_size=32, max_size=32))
def test_the_public_half_is_the_one_that_belongs_to_the_private_half(seed: bytes) -> None:
    known = Ed25519PrivateKey.from_private_bytes(seed).public_key()
    assert public_half(seed) == known.public_bytes(Encoding.Raw, PublicFormat.Raw)


@settings(max_examples=20, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.text("abc-", max_size=20))
def test_both_halves_are_read_by_others_whatever_the_comment_is(seed: bytes, comment: str) -> None:
    pair = pair_of(seed, comment)
    private = load_ssh_private_key(pair.private.encode(), None)
    assert isinstance(private, Ed25519PrivateKey)
    assert private.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption()) == seed
    assert load_ssh_public_key(pair.public.encode()) == private.public_key()


def test_no_two_pairs_are_the_same_and_a_pair_does_not_show_its_private_half() -> None:
    one, other = new_pair("k1"), new_pair("k1")
    assert one.private != other.private
    assert "PRIVATE" not in repr(one)
    assert one.public.endswith(" k1")


def test_a_pair_follows_from_its_seed() -> None:
    assert pair_of(bytes(32)) == pair_of(bytes(32))
