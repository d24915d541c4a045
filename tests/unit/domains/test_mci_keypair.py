"""Key pairs are what everybody takes for key pairs, and show only one half of themselves."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from stateward.domains.mci.keypair import new_pair


def test_the_public_half_is_the_one_that_belongs_to_the_private_half() -> None:
    pair = new_pair("k1")
    private = load_ssh_private_key(pair.private.encode(), None)
    assert isinstance(private, Ed25519PrivateKey)
    assert load_ssh_public_key(pair.public.encode()) == private.public_key()
    assert pair.public.endswith(" k1")


def test_no_two_pairs_are_the_same_and_a_pair_does_not_show_its_private_half() -> None:
    one, other = new_pair(), new_pair()
    assert one.private != other.private
    assert "PRIVATE" not in repr(one)
