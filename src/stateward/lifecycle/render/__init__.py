"""Drawings of lifecycles, all derived from the declared table: Mermaid, Markdown, terminal and SVG."""

from stateward.lifecycle.render.mermaid import mermaid
from stateward.lifecycle.render.row_tables import markdown, text
from stateward.lifecycle.render.svg import svg

__all__ = ["markdown", "mermaid", "svg", "text"]
