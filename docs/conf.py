"""The settings of Sphinx, which `make docs` builds the site with.

The source folder of the site is the root of the repository: a page has the same place in the repository and on the
site, so that a relative link is right in both.
"""

import hashlib
import json
import logging
import os
import sys
from pathlib import Path

from transduce import __version__

PROJECT = Path(__file__).parents[1]
sys.path.append(str(PROJECT / "docs" / "_extensions"))

project = "Transduce"
author = "the authors of Transduce"
release = __version__
root_doc = "docs/index"
include_patterns = ["*.md", "benchmarks/*.md", "benchmarks/results/*.md", "docs/*.md", "docs/**/*.md"]
# Folders without pages are named so that they are not searched.
exclude_patterns = [".*", "build", "dist", "docs/_*", "recipes", "runs", "scripts", "src", "tests", "transduce-demo"]
extensions = ["myst_nb", "public_names", "site_pages"]  # the last two are in docs/_extensions

# Markdown. Headings have the anchors that GitHub gives them.
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 4

# Pages with code are executed anew when their own code has changed, or any module that they may import: the name of the
# cache is a digest of all of these.
_modules = [*sorted((PROJECT / "src").rglob("*.py")), *sorted((PROJECT / "docs").glob("[a-z]*/*.py"))]
_digest = hashlib.sha256(b"".join(path.read_bytes() for path in _modules)).hexdigest()
nb_execution_mode = "cache"
nb_execution_cache_path = str(PROJECT / "docs" / "_build" / "executed" / _digest[:16])
nb_execution_timeout = 600  # seconds for a page
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
logging.getLogger("traitlets").setLevel(logging.ERROR)  # else it names every page

# Pages are executed without the reader's own settings of IPython, and without a warning that other users of this
# machine could listen to a kernel.
_ipython = PROJECT / "docs" / "_build" / "ipython"
os.environ["IPYTHONDIR"] = str(_ipython)
(_ipython / "profile_default").mkdir(parents=True, exist_ok=True)
(_ipython / "profile_default" / "ipython_kernel_config.json").write_text(
    json.dumps({"IPKernelApp": {"log_level": logging.ERROR}}), encoding="utf-8"
)

# Docstrings: plain text with Google's sections.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
add_module_names = False
maximum_signature_line_length = 80

# Warnings are errors. Classes of other packages have no page here to link to.
nitpicky = True
nitpick_ignore_regex = [("py:class", ".*")]

html_theme = "furo"
html_title = "Transduce"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["scrolling.js"]
html_copy_source = False
html_domain_indices = html_use_index = False
html_show_sourcelink = False
html_show_copyright = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
