"""How Sphinx builds the site; `tools/site.py` lays out what it reads, and calls it. Nothing is loaded from outside."""

import gc

from stateward import __version__

gc.disable()  # a build is short, and would spend a third of its time on looking for garbage

project = "Stateward"
version = release = __version__
extensions = ["myst_parser"]
root_doc = "index"
nitpicky = True
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"Stateward {__version__}"
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
