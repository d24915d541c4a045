"""What the console costs, on both sides; a browser is needed to tell, and where there is none that is said."""

import shutil
from importlib import import_module
from importlib.util import find_spec

from bench.figures import Line

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser")
NEEDED = "playwright (run tools/setup.py dev) and Chromium (apt-get install chromium-headless-shell)"


def report() -> list[Line]:
    """Return the figures of bench.console_page."""
    if find_spec("playwright") is None or not any(map(shutil.which, PROGRAMS)):
        return [f"console: nothing was measured; it needs {NEEDED}"]
    figures: list[Line] = import_module("bench.console_page").figures()
    return ["console", *figures]
