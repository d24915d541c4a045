"""Private keys that leave the server only encrypted, for an RSA key of the caller.

The form is CMS enveloped data in PEM (RFC 5652, AES-256), which `openssl cms -decrypt` and `stateward mci key open` can
open. CMS names its recipient by the issuer and the serial number of a certificate. A caller has a bare key, so both
sides make the same name from it: a fixed issuer, and a serial number that is a digest of the public key.
"""

from datetime import UTC, datetime, timedelta
from hashlib import sha256

from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.hazmat.primitives.serialization.pkcs7 import (
    PKCS7EnvelopeBuilder,
    PKCS7Options,
    pkcs7_decrypt_pem,
)
from cryptography.x509 import Certificate, CertificateBuilder, Name, NameAttribute, load_pem_x509_certificate
from cryptography.x509.oid import NameOID

from stateward.errors import BadInput

RECIPIENT = "an RSA public key of 2048 to 16384 bits, in PEM or as `ssh-rsa AAAA...`, or its certificate in PEM"
IDENTITY = "the file of the RSA private key that it was encrypted for, in PEM, without a passphrase"
SMALLEST_RECIPIENT, LARGEST_RECIPIENT = 2048, 16384
"""Sizes in bits; OpenSSL does not encrypt with larger keys."""

LARGEST_EXPONENT = 2**32
ISSUER = Name([NameAttribute(NameOID.COMMON_NAME, "stateward recipient")])
SERIAL_BYTES = 16
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)


def read_recipient(field: str, text: str) -> RSAPublicKey:
    """Return the public key that a private key is encrypted for; the error hides the value, which may be private."""
    try:
        key = _load_public(text.strip().encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, RSAPublicKey) or not _can_encrypt(key):
        raise BadInput(field, f"a text of {len(text)} characters", RECIPIENT)
    return key


def _can_encrypt(public: RSAPublicKey) -> bool:
    """Return whether a key can be used; a key in the form of SSH is loaded without a look at its numbers."""
    numbers = public.public_numbers()
    if not SMALLEST_RECIPIENT <= public.key_size <= LARGEST_RECIPIENT or numbers.n % 2 == 0:
        return False
    if not 3 <= numbers.e <= LARGEST_EXPONENT or numbers.e % 2 == 0:
        return False
    try:
        encrypt_for(public, "trial")
    except (ValueError, UnsupportedAlgorithm, InternalError):
        return False
    return True


def _load_public(text: bytes) -> object:
    if text.startswith(b"ssh-"):
        return load_ssh_public_key(text)
    if text.startswith(b"-----BEGIN CERTIFICATE"):
        return load_pem_x509_certificate(text).public_key()
    return load_pem_public_key(text)


def encrypt_for(recipient: RSAPublicKey, private: str) -> str:
    """Return a private key that only the owner of the recipient's key can read, as CMS in PEM."""
    envelope = PKCS7EnvelopeBuilder().set_data(private.encode()).add_recipient(_certificate(recipient))
    return envelope.set_content_encryption_algorithm(AES256).encrypt(Encoding.PEM, [PKCS7Options.Binary]).decode()


def open_encrypted(encrypted: bytes, identity: bytes) -> str:
    """Return the private key in CMS; `identity` is the private key that it was encrypted for."""
    load = load_ssh_private_key if b"BEGIN OPENSSH" in identity else load_pem_private_key
    try:
        key = load(identity, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise BadInput("--identity", None, IDENTITY)
    try:
        return pkcs7_decrypt_pem(encrypted, _certificate(key.public_key()), key, []).decode()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadInput("--identity", None, f"{IDENTITY} ({error})") from None


def _certificate(public: RSAPublicKey) -> Certificate:
    """Return the certificate whose issuer and serial number name a public key in CMS; nobody checks who signed it."""
    digest = sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
    serial = int.from_bytes(digest[:SERIAL_BYTES]) >> 1 or 1
    builder = CertificateBuilder(ISSUER, ISSUER, public, serial, BEGINNING, BEGINNING + timedelta(days=1))
    return builder.sign(Ed25519PrivateKey.generate(), None)
