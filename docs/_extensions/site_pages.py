"""Pages of the site: formulas as MathML, links of included pages, markup, and the way to the first page."""

import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

LINK = re.compile(r"(?<=\]\()(?![a-z]+:)([^)\s]+)(?=\))")
"""The address in a Markdown link or image, unless it names a protocol, as in https:."""


def render_inline_math(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line as MathML, which browsers draw by themselves."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def render_math_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula as MathML, with its number if it has a label."""
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    if node["number"]:
        translator.body.append(f'<span class="eqno">({node["number"]})')
        translator.add_permalink_ref(node, "Link to this equation")
        translator.body.append("</span>")
    translator.body.append(convert(node.astext().strip(), display="block") + "</div>\n")
    raise nodes.SkipNode


def move_links(app: Sphinx, included: Path, _: str, content: list[str]) -> None:
    """Make relative links of an included page relative to the page that includes it; those to itself lead to it."""
    page, root = (app.srcdir / app.env.docname).parent, app.srcdir / included

    def move(link: re.Match[str]) -> str:
        name, mark, anchor = link[1].partition("#")
        target = root.parent / name if name else root
        return Path(os.path.relpath(target, page)).as_posix() + mark + anchor

    content[0] = LINK.sub(move, content[0])


def correct_markup(app: Sphinx, name: str, template: str, context: dict[str, Any], document: object) -> None:
    """Correct what makes pages of Sphinx hard to use with a screen reader.

    The parameters of a long signature are a list of descriptions without terms; the captions of the table of contents
    are headings of no level.
    """

    def replace_list(signature: re.Match[str]) -> str:
        opened = re.sub(r"<(dl|dd)>", r'<span class="\1">', signature[0])
        return re.sub(r"</(dl|dd)>", "</span>", opened)

    context["body"] = re.sub(r'<dt class="sig .*?</dt>', replace_list, context.get("body", ""), flags=re.DOTALL)
    tree = context["furo_navigation_tree"]
    context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def write_front_page(app: Sphinx, error: Exception | None) -> None:
    """Lead from the address of the site to its first page, which is in a folder of the repository."""
    if error is None and app.builder.name == "html":
        page, title = f"{app.config.root_doc}.html", app.config.project
        text = f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        text += f'<meta http-equiv="refresh" content="0; url={page}">\n<a href="{page}">{title}</a>\n'
        (app.outdir / "index.html").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect everything to Sphinx."""
    app.add_html_math_renderer("mathml", (render_inline_math, None), (render_math_block, None))
    app.connect("include-read", move_links)
    app.connect("html-page-context", correct_markup, priority=900)  # after the theme
    app.connect("build-finished", write_front_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
