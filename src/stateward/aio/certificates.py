"""The certificates that clients of other servers trust, loaded once: it takes 50 ms, in which the event loop stands."""

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


@lru_cache(1)
def trusted_certificates() -> "ssl.SSLContext":
    """Return a context with the certificates of SSL_CERT_FILE and SSL_CERT_DIR, or with the well-known ones."""
    import httpx  # its import takes 0.1 s, and most processes ask no other server

    return httpx.create_ssl_context()
