"""A trace as one self-contained HTML page with its style, script and numbers embedded."""

import json
import math
from typing import Any

from regard.html import Markup, document, package_file, tag
from regard.interpret.forward_pass import ForwardPass
from regard.interpret.render.sections import all_sections
from regard.interpret.render.shared import ATTENTION_TITLES

MAX_EMBEDDED_NUMBERS = 300_000
ATTENTION_POINTS = ("scores", "scaled", "masked", "weights")


def trace_page(trace: ForwardPass) -> str:
    """Return the whole page."""
    data = attention_data(trace)
    sections = [section for section in all_sections(trace, data) if section]
    content = json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    numbers = tag("script", Markup(content), type="application/json", id="attention-data")
    script = tag("script", package_file(__package__, "page.js"))
    style = package_file(__package__, "page.css")
    return document(f"{trace.text}: trace", style, tag("main", *sections), numbers, script)


def notebook_frame(trace: ForwardPass) -> str:
    """Return the page in an iframe, so that its styles and scripts do not affect the notebook."""
    style = "width:100%;height:760px;border:0;border-radius:8px"
    return tag("iframe", srcdoc=trace_page(trace), style=style, title="trace")


def attention_data(trace: ForwardPass) -> dict[str, Any]:
    """Return the numbers of every attention for the page's script.

    To limit the size of the page, only the weights are embedded, or only those of the last layers; a note says so.
    """
    weights = [point for point in trace.points.values() if point.point == "weights"]
    sizes = [trace.activation(point.name).numel() for point in weights]
    names = ATTENTION_POINTS if len(ATTENTION_POINTS) * sum(sizes) <= MAX_EMBEDDED_NUMBERS else ("weights",)
    note = "" if names == ATTENTION_POINTS else "Only weights are embedded; scores would make the page too large."
    while weights and len(names) * sum(sizes) > MAX_EMBEDDED_NUMBERS:
        weights, sizes = weights[1:], sizes[1:]
        note = "Only the weights of the last layers are embedded; all layers would make the page too large."
    attentions = []
    for point in weights:
        place = point.name.removesuffix(".weights")
        keys = trace.labels(point.axes[-1])
        values = {
            name: [_rounded(head) for head in trace.activation(f"{place}.{name}").tolist()]
            for name in names
            if f"{place}.{name}" in trace.points
        }
        layer = "" if point.layer is None else f", layer {point.layer}"
        attentions.append(
            {
                "name": place,
                "title": f"{point.stack.capitalize()}{layer}: {ATTENTION_TITLES[point.part]}",
                "rows": trace.labels(point.axes[1]),
                "columns": keys or [f"mixture {n}" for n in range(len(values["weights"][0][0]))],
                "points": values,
            }
        )
    return {"attentions": attentions, "note": note}


def _rounded(rows: list[list[float]]) -> list[list[float | None]]:
    return [[float(f"{value:.4g}") if math.isfinite(value) else None for value in row] for row in rows]
