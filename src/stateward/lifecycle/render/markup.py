"""SVG elements as text: the one place where anything is escaped."""

import re

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ENTITIES = str.maketrans({sign: f"&#{ord(sign)};" for sign in "&<>\"'\t\n\r"})


def escaped(text: str) -> str:
    """Make any text safe as content and in an attribute; what XML cannot hold at all becomes a mark."""
    return _FORBIDDEN.sub("\ufffd", text).translate(_ENTITIES)


def number(value: float) -> str:
    """Write a length with one digit at most, which is finer than anybody sees."""
    return f"{round(value, 1) + 0.0:g}"


def element(tag: str, attributes: dict[str, str | float], *inside: str) -> str:
    """Write an element; attributes are escaped here, what is inside must be markup already."""
    written = "".join(
        f' {name}="{escaped(value) if isinstance(value, str) else number(value)}"' for name, value in attributes.items()
    )
    return f"<{tag}{written}>{''.join(inside)}</{tag}>" if inside else f"<{tag}{written}/>"
