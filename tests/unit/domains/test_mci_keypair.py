"""Key pairs are what everybody takes for key pairs, and show only one half of themselves."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)

from stateward.domains.mci.provider.key_pairs import check_public_key, new_pair
from stateward.errors import BadInput


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


def open_ssh(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def test_public_keys_that_openssh_reads_are_taken() -> None:
    pair = new_pair()
    others = open_ssh(rsa.generate_private_key(65537, 2048)), open_ssh(ec.generate_private_key(ec.SECP256R1()))
    for text in (pair.public, f"{pair.public} ann@her machine", *others):
        assert check_public_key("publicKey", text) == text


@pytest.mark.parametrize(
    "text",
    [
        "garbage",
        "ssh-ed25519",
        "ssh-ed25519 AAAA me",
        "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIJd1uvoXIYdG8kVdJTjh0bm2b3PYxV8Wmq0m0m5n4xkz",  # an ed25519 key by its blob
        pytest.param(f"command=id {new_pair().public}", id="with an option"),
        f"{new_pair().public}\n{new_pair().public}",
        "ssh-ed25519 \ud800",
    ],
)
def test_what_is_no_public_key_is_refused_with_the_field(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_public_key("publicKey", text)
    assert refused.value.field == "publicKey"


def test_a_private_key_in_the_place_of_a_public_one_is_refused_and_not_repeated() -> None:
    private = new_pair().private
    with pytest.raises(BadInput) as refused:
        check_public_key("publicKey", private)
    assert private.splitlines()[1] not in f"{refused.value} {refused.value.facts()}"
