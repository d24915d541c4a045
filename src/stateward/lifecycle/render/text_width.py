"""How wide a text is, without asking any font: a drawing must come out the same on every machine.

The widths are those of ordinary sans-serif letters, in hundredths of the font size. The page will show the drawing in
whatever its system's font is, so a tenth is added to make wider ones fit.
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
_SPARE = 1.1


def text_width(text: str, size: float) -> float:
    """Return how wide a text is when set in the given size."""
    return size * _SPARE * sum(map(_letter, text))


def _letter(letter: str) -> float:
    known = _WIDTH.get(letter)
    if known is not None:
        return known
    if combining(letter):
        return 0.0
    return _FULL if east_asian_width(letter) in "WF" else _ORDINARY
