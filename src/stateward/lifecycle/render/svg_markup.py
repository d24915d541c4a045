"""SVG elements as text, and the style sheet. All escaping is done here."""

import re

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ENTITIES = str.maketrans({sign: f"&#{ord(sign)};" for sign in "&<>\"'\t\n\r"})


def escaped(text: str) -> str:
    """Escape a text for content and attributes; characters that XML does not allow become a replacement character."""
    return _FORBIDDEN.sub("\ufffd", text).translate(_ENTITIES)


def number(value: float) -> str:
    """Return a length with at most one decimal, which is finer than a pixel."""
    return f"{round(value, 1) + 0.0:g}"


def element(tag: str, attributes: dict[str, str | float], *inside: str) -> str:
    """Return an element; attributes are escaped here, the content must be markup already."""
    written = "".join(
        f' {name}="{escaped(value) if isinstance(value, str) else number(value)}"' for name, value in attributes.items()
    )
    return f"<{tag}{written}>{''.join(inside)}</{tag}>" if inside else f"<{tag}{written}/>"


_LIGHT = {
    "paper": "#ffffff",
    "ink": "#1f2933",
    "quiet": "#66727f",
    "stable": "#1f7a4d",
    "transitional": "#a76a00",
    "final": "#2f5fa8",
    "failed": "#b3423a",
}
_DARK = {
    "paper": "#12161b",
    "ink": "#e4e9ee",
    "quiet": "#93a0ad",
    "stable": "#57c98e",
    "transitional": "#e3aa45",
    "final": "#7fb0f5",
    "failed": "#e0847c",
}


def _colours(colours: dict[str, str]) -> str:
    return ";".join(f"--{name}:var(--lifecycle-{name},{colour})" for name, colour in colours.items())


STYLE = f"""
.lifecycle{{{_colours(_LIGHT)};font-family:system-ui,sans-serif;fill:none;stroke-linecap:round}}
@media (prefers-color-scheme:dark){{.lifecycle{{{_colours(_DARK)}}}}}
.lifecycle text{{fill:var(--ink);text-anchor:middle}}
.lifecycle .state text{{font-size:13px;font-weight:600}}
.lifecycle .state .count{{font-size:10px;text-anchor:end}}
.lifecycle .stable{{--tint:var(--stable)}}
.lifecycle .transitional{{--tint:var(--transitional)}}
.lifecycle .final{{--tint:var(--final)}}
.lifecycle .state rect{{stroke:var(--tint);stroke-width:1.6;fill:var(--tint);fill-opacity:.1}}
.lifecycle .state .inner{{fill:none;stroke-width:1}}
.lifecycle .transitional rect{{stroke-dasharray:5 4}}
.lifecycle .initial circle{{fill:var(--ink)}}
.lifecycle .gone circle{{stroke:var(--ink);stroke-width:1.4}}
.lifecycle .gone .eye{{fill:var(--ink);stroke:none}}
.lifecycle .move{{--tint:var(--ink)}}
.lifecycle .move path{{stroke:var(--tint);stroke-width:1.2}}
.lifecycle .move polygon{{fill:var(--tint)}}
.lifecycle .labels text{{font-size:11px;stroke:var(--paper);stroke-width:3px;paint-order:stroke;stroke-linejoin:round}}
.lifecycle .move.asked path{{stroke-width:2}}
.lifecycle .move.went-on,.lifecycle .move.insisted{{--tint:var(--quiet)}}
.lifecycle .move.insisted path{{stroke-dasharray:4 4}}
.lifecycle .move.failed{{--tint:var(--failed)}}
.lifecycle .move.failed path{{stroke-width:.9}}
.lifecycle .move.back path{{stroke:none}}
.lifecycle text.asked{{font-weight:600}}
.lifecycle text.failed{{fill:var(--failed)}}
.lifecycle text.whence{{fill:var(--quiet);font-style:italic}}
"""
