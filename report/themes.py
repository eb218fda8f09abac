"""A figure as an image: a PNG on white, and an SVG that is light or dark as the page around it is.

Every colour of an SVG is a variable with a value for either, which the SVG's own style sheet chooses. Shapes carry
letters, so that it looks alike wherever it is opened.

Invariants:
- a colour that has no dark counterpart here is an error, never a line that cannot be seen;
- the same figure gives the same bytes.
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import Any
from xml.etree import ElementTree

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

INK, PAPER, GRID = "#1c1c1c", "#ffffff", "#e3e3e3"
# Okabe and Ito's palette, told apart by colour-blind readers; its yellow is too pale for a line on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
GREYS = ("#444444", "#666666", "#808080", "#999999", "#aaaaaa")
_DARK = {
    INK: "#e4e4e4", PAPER: "#161616", GRID: "#363636",
    **dict(zip(COLOURS, ("#5aa9e6", "#ff8b45", "#35c795", "#e59bc4", "#a5dbff", "#ffc64d", "#f4f4f4"), strict=True)),
    **dict(zip(GREYS, ("#c4c4c4", "#a8a8a8", "#949494", "#808080", "#707070"), strict=True)),
}
STYLE: Any = {
    "text.parse_math": False,  # a run may be called $x$
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.facecolor": PAPER, "figure.facecolor": PAPER, "savefig.facecolor": PAPER,
    "svg.hashsalt": "mem_agent", "svg.fonttype": "path",
}
_SVG = "http://www.w3.org/2000/svg"
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")


def png_of(figure: Figure) -> bytes:
    FigureCanvasAgg(figure)
    content = BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()


def svg_of(figure: Figure) -> bytes:
    content = BytesIO()
    with rc_context(STYLE):
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    return in_both_themes(content.getvalue())


def in_both_themes(svg: bytes) -> bytes:
    """The drawing with its colours as variables."""
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    # Names stand in comments of the drawing as they are, and XML has no control characters.
    root = ElementTree.fromstring(_NOT_XML.sub("", svg.decode()))
    used = {INK}
    for element in root.iter():
        if style := element.get("style"):
            used |= {colour.lower() for colour in _COLOUR.findall(style)}
            element.set("style", _COLOUR.sub(lambda found: f"var({_variable(found[0])})", style))
    unknown = used - _DARK.keys()
    assert not unknown, f"no dark counterpart of {', '.join(sorted(unknown))}"
    light, dark = (
        "".join(f"{_variable(colour)}:{values[colour]};" for colour in sorted(used))
        for values in ({colour: colour for colour in used}, _DARK)
    )
    sheet = ElementTree.Element(f"{{{_SVG}}}style")
    sheet.text = f"svg{{{light}fill:var({_variable(INK)})}}@media (prefers-color-scheme:dark){{svg{{{dark}}}}}"
    root.insert(0, sheet)
    return ElementTree.tostring(root, encoding="utf-8")


def _variable(colour: str) -> str:
    return f"--c{colour[1:].lower()}"
