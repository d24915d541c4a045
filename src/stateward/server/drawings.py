"""Drawings of lifecycles: the picture is laid out beside the event loop, and only once."""

import asyncio
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256

from stateward.lifecycle import Lifecycle
from stateward.lifecycle.render import markdown, mermaid, svg
from stateward.lifecycle.render.style import STYLE

FORMS: dict[str, tuple[str, Callable[[Lifecycle], str]]] = {
    "svg": ("image/svg+xml", svg),
    "mermaid": ("text/vnd.mermaid", mermaid),
    "markdown": ("text/markdown", markdown),
}

STYLE_HASH = f"'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'"
"""How a content policy allows the style of our pictures, and no other."""


class Drawings:
    """Draws lifecycles, one at a time: the library that lays out pictures is not made for threads."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def draw(self, lifecycle: Lifecycle, form: str) -> tuple[str, str]:
        """Return a drawing's media type and text."""
        media_type, render = FORMS[form]
        async with self._lock:
            return media_type, await asyncio.to_thread(render, lifecycle)
