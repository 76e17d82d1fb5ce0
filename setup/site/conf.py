"""Sphinx's settings for the site. `setup/build_site.py` lays out the pages and calls Sphinx."""

from __future__ import annotations

from headrace import __version__

project = "Headrace"
author = "The Headrace authors"
release = __version__
html_title = "Headrace"

extensions = ["myst_parser"]
exclude_patterns: list[str] = []
# An anchor for each heading, spelled as a forge spells it; a link to one that is missing is an error.
myst_heading_anchors = 4
# Excerpts of JSON and TOML with dots in them are no errors.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
highlight_language = "none"
pygments_style = "default"
pygments_dark_style = "github-dark"
