"""A private key that was encrypted for the caller: openssl opens it, and so do we."""

import subprocess
from base64 import b64encode
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from typer.testing import CliRunner

from stateward.domains.mci.cli.key_commands import app
from stateward.domains.mci.provider.encrypted_keys import encrypt_for, open_encrypted, read_recipient
from stateward.domains.mci.provider.key_pairs import new_pair
from stateward.errors import BadInput

PRIVATE = new_pair("shop").private


@pytest.fixture(scope="module")
def owner() -> RSAPrivateKey:
    return generate_private_key(65537, 2048)


def pem(key: RSAPrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    ("encoding", "form"),
    [(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), (Encoding.OpenSSH, PublicFormat.OpenSSH)],
)
def test_openssl_opens_it(tmp_path: Path, owner: RSAPrivateKey, encoding: Encoding, form: PublicFormat) -> None:
    public = owner.public_key().public_bytes(encoding, form).decode()
    encrypted = encrypt_for(read_recipient("encryptFor", public), PRIVATE)
    assert "PRIVATE" not in encrypted
    (tmp_path / "key").write_bytes(pem(owner))
    opened = subprocess.run(
        ["openssl", "cms", "-decrypt", "-inform", "PEM", "-inkey", str(tmp_path / "key")],
        input=encrypted,
        capture_output=True,
        text=True,
        check=True,
    )
    assert opened.stdout == PRIVATE


def test_the_command_opens_it(tmp_path: Path, owner: RSAPrivateKey) -> None:
    (tmp_path / "encrypted").write_text(encrypt_for(owner.public_key(), PRIVATE))
    (tmp_path / "key").write_bytes(pem(owner))
    done = CliRunner().invoke(app, [str(tmp_path / "encrypted"), "--identity", str(tmp_path / "key")])
    assert (done.exit_code, done.output) == (0, PRIVATE)


def test_nobody_else_opens_it(owner: RSAPrivateKey) -> None:
    encrypted = encrypt_for(owner.public_key(), PRIVATE).encode()
    with pytest.raises(BadInput, match="identity"):
        open_encrypted(encrypted, pem(generate_private_key(65537, 2048)))
    with pytest.raises(BadInput, match="identity"):
        open_encrypted(encrypted, b"no key")


@pytest.mark.parametrize(
    "text", ["", "nonsense", PRIVATE, new_pair("x").public], ids=["empty", "nonsense", "private", "ed25519"]
)
def test_what_is_no_rsa_public_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_recipient("encryptFor", text)
    assert refused.value.field == "encryptFor"
    assert text == "" or text not in str(refused.value)


def ssh_rsa(modulus: int, exponent: int = 65537) -> str:
    """Return a public key of these numbers, though no private key may fit them."""
    numbers = [number.to_bytes(number.bit_length() // 8 + 1) for number in (exponent, modulus)]
    parts = [len(part).to_bytes(4) + part for part in (b"ssh-rsa", *numbers)]
    return f"ssh-rsa {b64encode(b''.join(parts)).decode()}"


def test_an_rsa_key_that_cannot_encrypt_is_refused(owner: RSAPrivateKey) -> None:
    modulus = owner.public_key().public_numbers().n
    assert read_recipient("encryptFor", ssh_rsa(modulus)) == owner.public_key()
    unusable = (
        ssh_rsa(modulus + 1),
        ssh_rsa(modulus >> 1 | 1),
        ssh_rsa(2**19_999 + 1),
        ssh_rsa(modulus, 1),
        ssh_rsa(modulus, 65536),
        ssh_rsa(modulus, 2**32 + 1),
        ssh_rsa(modulus, 2**2000 + 1),
    )
    for text in unusable:
        with pytest.raises(BadInput, match="encryptFor"):
            read_recipient("encryptFor", text)
