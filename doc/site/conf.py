"""What Sphinx needs to make the site of doc/ and the headers.

build-aux/html.sh copies the pages, has Doxygen read the headers, and sets the
variables.

SPDX-License-Identifier: Apache-2.0
"""

import os

project = "graphhooks"
copyright = "the graphhooks authors, Apache-2.0"
release = version = os.environ["SITE_VERSION"]

extensions = ["breathe", "myst_parser"]
root_doc = "README"
html_theme = "furo"
html_title = f"graphhooks {release}"

# A link to a heading of a page, as the pages have them.
myst_heading_anchors = 4
breathe_projects = {"graphhooks": os.environ["SITE_XML"]}
breathe_default_project = "graphhooks"
breathe_domain_by_extension = {"h": "c"}
breathe_show_include = False
# Pages link to folders and sources, which no site has.  tests/abi/docs.t knows
# that each is there.
suppress_warnings = ["myst.xref_missing"]
