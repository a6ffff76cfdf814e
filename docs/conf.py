"""Configuration of the documentation's site; `make docs` builds it."""

project = "hlotune"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "hlotune"
html_extra_path = ["llms.txt"]
exclude_patterns = ["_build"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
suppress_warnings = ["myst.xref_missing"]
"""Links out of docs/ to files of the tree are no pages; a test checks that they exist."""
