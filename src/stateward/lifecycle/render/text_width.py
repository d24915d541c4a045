"""The width of a text, computed without a font, so that a drawing is the same on every machine.

The widths are those of common sans-serif letters, in hundredths of the font size. A page shows the drawing in the font
of its system, so a tenth is added for wider fonts.
"""

from unicodedata import combining, east_asian_width

_WIDTHS = (
    (22, "ijl'|"),
    (30, "ftrI.,:;!()[]/\\`- "),
    (38, '"*{}^°·'),
    (50, "ckszvxyJ_?"),
    (58, "abdeghnopqu0123456789+=<>~#$LFTZE"),
    (68, "ABCDGHKNOPQRSUVXYÄÖÜ&"),
    (86, "mwMW%@—"),
)
_WIDTH = {letter: width / 100 for width, letters in _WIDTHS for letter in letters}
_ORDINARY = 0.6
_FULL = 1.0
_MARGIN = 1.1


def text_width(text: str, size: float) -> float:
    """Return the width of a text in the given font size."""
    return size * _MARGIN * sum(map(_letter, text))


def _letter(letter: str) -> float:
    known = _WIDTH.get(letter)
    if known is not None:
        return known
    if combining(letter):
        return 0.0
    return _FULL if east_asian_width(letter) in "WF" else _ORDINARY
