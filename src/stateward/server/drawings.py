"""Drawings of lifecycles in the forms of the API: as a picture, as Mermaid and as Markdown tables."""

import asyncio

from stateward.lifecycle import Lifecycle
from stateward.lifecycle.render import markdown, mermaid
from stateward.plugin.registry import Plugins

SVG = "svg"
FORMS = {SVG: "image/svg+xml", "mermaid": "text/vnd.mermaid", "markdown": "text/markdown"}
"""The forms of diagrams, and their media types."""


class Drawings:
    """Draws lifecycles in a thread, one at a time: the layout library is not thread-safe."""

    def __init__(self, plugins: Plugins) -> None:
        self._lock = asyncio.Lock()
        self._forms = {SVG: plugins.picture_of, "mermaid": mermaid, "markdown": markdown}

    async def draw(self, lifecycle: Lifecycle, form: str) -> tuple[str, str]:
        """Return the media type and the text of a diagram."""
        async with self._lock:
            return FORMS[form], await asyncio.to_thread(self._forms[form], lifecycle)
