"""Private keys in texts: how they are found and masked.

A caller may send a private key in a field for a public one: `id_rsa` instead of `id_rsa.pub`. The request is refused,
but requests are logged, stored and repeated in errors. A private key is therefore found by its form, not by the name of
its field: in PEM, in the format of PuTTY, or of age.
"""

import re

MASK = "***"

PRIVATE_KEY = re.compile(
    r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY.*?(?:-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,8}-*|\Z)"
    r"|Private-Lines:.*?(?:Private-MAC:\s*[0-9a-f]*|\Z)"
    r"|AGE-SECRET-KEY-[A-Z0-9-]*",
    re.DOTALL | re.IGNORECASE,
)
"""A private key; one whose end is missing reaches to the end of the text."""


def has_private_key(text: str) -> bool:
    """Return whether a text has a private key in it."""
    return PRIVATE_KEY.search(text) is not None


def mask_private_keys(text: str) -> str:
    """Return a text with the private keys in it masked."""
    return PRIVATE_KEY.sub(MASK, text)
