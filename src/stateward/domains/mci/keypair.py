"""Key pairs: made where they are asked for, so that the private half never leaves the process that answers.

The provider is given the public half only. A private half that a provider made would have to travel from the worker to
whoever asked, over a store that others read, and would be lost for good with a worker that dies in between.

Ed25519 as in RFC 8032, and the private half as OpenSSH writes it. Nothing is signed here: a key is made once, by one
multiplication, and what that costs in time is seen by nobody but this process.
"""

from base64 import b64encode
from hashlib import sha512
from secrets import token_bytes
from textwrap import wrap

from msgspec import Struct

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
BASE_Y = 4 * pow(5, -1, P) % P
SORT = b"ssh-ed25519"
MAGIC = b"openssh-key-v1\0"
BLOCK = 8
"""The private part is filled up to a multiple of this many bytes."""

Point = tuple[int, int, int, int]
"""A point of the curve in extended coordinates."""


class KeyPair(Struct, frozen=True):
    """Both halves, as OpenSSH reads them."""

    public: str
    private: str

    def __repr__(self) -> str:
        """Show the public half only."""
        return f"KeyPair(public={self.public!r})"


def new_pair(comment: str = "") -> KeyPair:
    """Make a key pair."""
    return pair_of(token_bytes(32), comment)


def pair_of(seed: bytes, comment: str = "") -> KeyPair:
    """Return the key pair that follows from 32 bytes."""
    public = public_half(seed)
    blob = _text(SORT) + _text(public)
    check = sha512(b"check" + seed).digest()[:4]
    secret = check * 2 + blob + _text(seed + public) + _text(comment.encode())
    secret += bytes(range(1, 1 + -len(secret) % BLOCK))
    body = MAGIC + _text(b"none") * 2 + _text(b"") + (1).to_bytes(4, "big") + _text(blob) + _text(secret)
    lines = "\n".join(wrap(b64encode(body).decode(), 70))
    named = f"{SORT.decode()} {b64encode(blob).decode()} {comment}".strip()
    return KeyPair(named, f"-----BEGIN OPENSSH PRIVATE KEY-----\n{lines}\n-----END OPENSSH PRIVATE KEY-----\n")


def public_half(seed: bytes) -> bytes:
    """Return the public half that belongs to a seed."""
    scalar = int.from_bytes(sha512(seed).digest()[:32], "little")
    scalar = scalar & (2**254 - 8) | 2**254
    x, y, z, _ = _times(scalar, (_base_x(), BASE_Y, 1, _base_x() * BASE_Y % P))
    inverse = pow(z, -1, P)
    return (y * inverse % P | (x * inverse % P & 1) << 255).to_bytes(32, "little")


def _base_x() -> int:
    """Return the even root of the curve's equation at the base point."""
    square = (BASE_Y * BASE_Y - 1) * pow(D * BASE_Y * BASE_Y + 1, -1, P)
    root = pow(square, (P + 3) // 8, P)
    if (root * root - square) % P:
        root = root * pow(2, (P - 1) // 4, P) % P
    return root if root % 2 == 0 else P - root


def _times(scalar: int, point: Point) -> Point:
    total: Point = 0, 1, 1, 0
    while scalar:
        if scalar & 1:
            total = _sum(total, point)
        point = _sum(point, point)
        scalar >>= 1
    return total


def _sum(one: Point, other: Point) -> Point:
    a = (one[1] - one[0]) * (other[1] - other[0]) % P
    b = (one[1] + one[0]) * (other[1] + other[0]) % P
    c = 2 * one[3] * other[3] * D % P
    d = 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _text(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value
