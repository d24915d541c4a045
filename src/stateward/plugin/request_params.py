"""Parameters that the routes of all domains and of the server share: the namespace, the idempotency key, and pages.

One declaration: a second one with another pattern would accept a name or a key that the rest of the API refuses.
"""

from typing import Annotated

from litestar.params import HeaderParameter, PathParameter, QueryParameter

from stateward.naming import IDEMPOTENCY_HEADER, IDEMPOTENCY_KEY, NAME
from stateward.schemas.params import TEXT

Ns = Annotated[str, PathParameter(pattern=NAME, description="the namespace")]
"""The type of a route's parameter `ns`: the namespace in its path."""

KEY_MEANS = "same key, same answer: done only once"
IdempotencyKey = Annotated[
    str | None,
    HeaderParameter(name=IDEMPOTENCY_HEADER, pattern=IDEMPOTENCY_KEY, description=KEY_MEANS),
]
"""The type of a route's parameter for the idempotency key, which clients send in a header."""

MAX_PAGE = 1_000
After = Annotated[str | None, QueryParameter(pattern=TEXT, description="the last id of the page before")]
PageLimit = Annotated[int, QueryParameter(ge=1, le=MAX_PAGE, description="at most so many")]
"""The types of the parameters `after` and `limit` of a list that is an array: a full page may be followed by others."""
