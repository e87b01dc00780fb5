"""A trace as one self-contained HTML page: its sections in the order of computation, with style, script and numbers."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from regard.html import Markup, document, join, package_file, table, tag, visible
from regard.interpret.attribution import HEAD_SELECTION, Alignment, align, gradient_norms, head_costs
from regard.interpret.forward_pass import ForwardPass, model_summary, notes
from regard.interpret.predictions import decoding_steps, output_log_probability, predictions_of
from regard.interpret.render.svg import alignment_picture, heatmap, tree_picture
from regard.interpret.render.tables import ATTENTION_TITLES, CAUTION, Sheet, encoder_sheets, format_experts
from regard.interpret.tokens import TokenizedText

MAX_EMBEDDED_NUMBERS = 300_000
ATTENTION_POINTS = ("scores", "scaled", "masked", "weights")
MAX_TREE_NODES = 400  # larger trees are drawn without their pruned nodes
MAX_OPEN_HEADS = 10  # shown before the rest is folded away


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
                "rows": [visible(label) for label in trace.labels(point.axes[1]) or ()],
                "columns": [visible(key) for key in keys or ()]
                or [f"mixture {n}" for n in range(len(values["weights"][0][0]))],
                "points": values,
            }
        )
    return {"attentions": attentions, "note": note}


def _rounded(rows: list[list[float]]) -> list[list[float | None]]:
    return [[float(f"{value:.4g}") if math.isfinite(value) else None for value in row] for row in rows]


# --- sections ---------------------------------------------------------------------------------------------------------


def all_sections(trace: ForwardPass, attention: Mapping[str, Any]) -> list[Markup]:
    """Return all sections; those that do not apply to the network are empty. `attention` is the embedded data."""
    return [
        _header(trace),
        _tokens(trace),
        *(_sheet(sheet) for sheet in encoder_sheets(trace)),
        _steps(trace),
        _alignment(trace),
        _attention(attention),
        _layers(trace),
        _gates(trace),
        _search(trace),
        _heads(trace),
        _gradients(trace),
    ]


def _section(title: str, note: str, *content: str) -> Markup:
    return tag("section", tag("h2", title), tag("p", note, class_="note"), *content)


def _header(trace: ForwardPass) -> Markup:
    model = model_summary(trace)
    sizes = [f"{model['layers']} layers"]
    if trace.kind == "translation":
        sizes = [f"{model['layers']} + {model['decoder_layers']} layers"]
    if model["heads"]:
        sizes.append(f"{model['heads']} heads")
    sizes += [f"width {model['width']}", f"{model['parameters']:,} parameters"]
    decodes = trace.target is not None
    forced = " of a forced target" if trace.forced_target is not None and decodes else ""
    article = "an" if model["family"][0] in "aeiou" else "a"
    return tag(
        "header",
        tag("p", f"{trace.kind.capitalize()}{forced} by {article} {model['family']}", class_="kind"),
        tag("h1", trace.text, dir="auto"),
        tag("p", trace.output, class_="output", dir="auto") if decodes else "",
        tag("p", f"target: {trace.expected}", class_="summary", dir="auto") if trace.expected is not None else "",
        tag("p", f"{model['name']} · {', '.join(sizes)}", class_="summary"),
        *(tag("p", note, class_="note warning") for note in notes(trace)),
    )


def _tokens(trace: ForwardPass) -> Markup:
    rows: list[Markup] = []
    target_title = "text" if trace.kind == "continuation" else "target"
    for title, text in (("source", trace.source), (target_title, trace.target)):
        if text is not None:
            depths = trace.decoded.features.get("depth") if text is trace.source else None
            rows.append(tag("div", tag("h3", title), _token_chips(text, depths), class_="side"))
    merged = [word for word in trace.merges if len(word.stages) > 2]
    merges = ""
    if merged:
        lines = [tag("li", " → ".join(" ".join(stage) for stage in word.stages)) for word in merged]
        merges = tag("details", tag("summary", "BPE merges"), tag("ol", *lines, class_="merges"))
    note = "The text as tokens of the vocabulary, each with its id; the tokens of a word are grouped."
    if "depth" in trace.decoded.features:
        note += " Below each source token, the depth of its word in the dependency tree."
    return _section("Tokens", note, *rows, merges)


def _token_chips(text: TokenizedText, depths: Sequence[int] | None = None) -> Markup:
    words = []
    for word in text.words:
        tokens = [
            tag(
                "span",
                tag("b", text.tokens[n]),
                tag("i", str(text.ids[n])),
                tag("i", f"depth {depths[n]}") if depths is not None else "",
                class_="token",
            )
            for n in word.tokens
        ]
        words.append(tag("span", *tokens, class_="word special" if word.special else "word"))
    return tag("div", *words, class_="tokens", dir="auto")


def _steps(trace: ForwardPass) -> Markup:
    steps = decoding_steps(trace)
    if not steps:
        return Markup("")
    rows = []
    for step in steps:
        others = [c for c in step.candidates if c.id != step.id and c.probability >= 0.001][:4]
        chips = [tag("span", c.token, " ", tag("i", f"{c.probability:.3f}"), class_="other") for c in others]
        rows.append(
            [
                str(step.step),
                tag("code", step.input_token),
                tag("code", step.token, class_="forced" if step.forced else "chosen"),
                _bar(step.probability),
                f"{step.probability:.3f}",
                f"{step.entropy:.2f}",
                join(*chips),
            ]
        )
    total = output_log_probability(trace)
    note = (
        "At each step the decoder reads one more token and predicts a distribution over the vocabulary. Total "
        f"log p = {total:.3f}, {total / len(rows):.3f} per token. Entropy in nats."
    )
    head = ["step", "input", "token", "", "probability", "entropy", "others"]
    return _section("Decoding steps", note, table(head, rows, class_="steps"))


def _sheet(sheet: Sheet) -> Markup:
    head = [name for title, kind in sheet.columns.items() for name in (["", title] if kind is float else [title])]
    rows: list[list[str]] = []
    for row in sheet.rows:
        cells: list[str] = []
        for cell, kind in zip(row, sheet.columns.values(), strict=True):
            if kind is float:
                cells += ["", ""] if cell is None else [_bar(float(cell)), f"{float(cell):.3f}"]
            else:
                cells.append(tag("code", "" if cell is None else str(cell)))
        rows.append(cells)
    note = f"{sheet.note[0].upper()}{sheet.note[1:]}."
    return _section(sheet.title, note, table(head, rows, class_="steps"))


def _bar(fraction: float, color: str = "c1") -> Markup:
    return tag("span", tag("span", style=f"width:{100 * max(0.0, min(1.0, fraction)):.1f}%"), class_=f"bar {color}")


def _alignment(trace: ForwardPass) -> Markup:
    if not trace.model.config.model.has_alignment or trace.source is None:
        return Markup("")
    alignment = align(trace)
    chosen = f"{alignment.chosen.point.removesuffix('.weights')}[{alignment.chosen.head}]"
    note = f"Attention weights of {chosen}: {HEAD_SELECTION}. Agreement: {alignment.chosen.agreement:.2f} of 1."
    heatmaps = tag(
        "div", _alignment_heatmap(alignment, costs=False), _alignment_heatmap(alignment, costs=True), class_="pair"
    )
    return _section("Alignment", note, alignment_picture(alignment), heatmaps, tag("p", CAUTION, class_="note caution"))


def _alignment_heatmap(alignment: Alignment, *, costs: bool) -> Markup:
    rows = [n for n, word in enumerate(alignment.target) if not word.special]
    columns = [n for n, word in enumerate(alignment.source) if not word.special]
    values = alignment.costs if costs else alignment.weights
    cells = [[float(values[n, m]) for m in columns] for n in rows]
    maximum = (max((value for row in cells for value in row), default=1.0) or 1.0) if costs else 1.0
    return heatmap(
        "cost of leaving the word out, in log p" if costs else "attention weights of the head",
        [alignment.target[n].text for n in rows],
        [alignment.source[n].text for n in columns],
        cells,
        maximum,
        "c2" if costs else "c1",
    )


def _attention(data: Mapping[str, Any]) -> Markup:
    if not data["attentions"]:
        return Markup("")
    note = (
        "Every head of every layer: a row is a query, a column is a key. Select a head to see its numbers before and "
        "after the softmax."
    )
    warning = tag("p", data["note"], class_="note warning") if data["note"] else ""
    gallery, detail = tag("div", class_="gallery", id="gallery"), tag("div", class_="detail", id="detail")
    noscript = tag("noscript", tag("p", "This section is drawn by a script in this page.", class_="note"))
    return _section("Attention", note, warning, tag("div", gallery, detail, class_="explorer"), noscript)


def _layers(trace: ForwardPass) -> Markup:
    """Mean and standard deviation that the norms computed, and the number of active hidden units."""
    blocks: list[Markup] = []
    for stack in ("encoder", "decoder"):
        labels = trace.labels("source" if stack == "encoder" else "target") or []
        layers = sorted(
            {
                point.layer
                for point in trace.points.values()
                if point.stack == stack and point.part.endswith("residual") and point.layer is not None
            }
        )
        for layer in layers:
            columns: list[str] = []
            cells: list[list[str]] = []
            for part in ("attention", "cross_attention", "feed_forward"):
                for name, symbol in (("mean", "μ"), ("deviation", "σ")):
                    point = f"{stack}.{layer}.{part}_residual.{name}"
                    if point in trace.points:
                        columns.append(f"{ATTENTION_TITLES.get(part, 'feed-forward')} {symbol}")
                        cells.append([f"{value:.3f}" for value in trace.activation(point).tolist()])
            units = trace.active_units(f"{stack}.{layer}")
            if units is not None:
                columns.append(f"active hidden units of {units.units}")
                cells.append([str(count) for count in units.active])
            experts = trace.chosen_experts(f"{stack}.{layer}")
            if experts is not None:
                columns.append("experts and gates")
                cells.append([format_experts(gates) for gates in experts])
            if columns:
                rows = [[tag("code", label), *(column[n] for column in cells)] for n, label in enumerate(labels)]
                title = tag("summary", f"{stack.capitalize()}, layer {layer}")
                blocks.append(
                    tag("details", title, table(["token", *columns], rows, class_="numbers"), open=not blocks)
                )
    if not blocks:
        return Markup("")
    note = "A norm scales each token's vector to mean 0 and standard deviation 1, then applies a learned gain and bias."
    return _section("Norms and feed-forward", note, *blocks)


def _gates(trace: ForwardPass) -> Markup:
    blocks = []
    for point in trace.points.values():
        if point.part in ("forwards", "backwards") and point.point.endswith(("gate", "cell", "hidden")):
            values = trace.activation(point.name)[:, :64].tolist()
            labels = trace.labels(point.axes[0]) or []
            low = 0.0 if point.point.endswith("gate") else -1.0
            cells = [[(value - low) / (1 - low) for value in row] for row in values]
            title = f"{point.name}: {point.description}"
            blocks.append(heatmap(title, labels, [""] * len(values[0]), cells, 1.0, "c1", small=True))
    if not blocks:
        return Markup("")
    note = "Rows are tokens, columns are units (at most 64). Light is 0 for gates and −1 for states; dark is 1."
    return _section("Gates", note, tag("div", *blocks, class_="gates"))


def _search(trace: ForwardPass) -> Markup:
    tree, hypothesis = trace.tree, trace.decoded.hypothesis
    if tree is None or hypothesis is None:
        return Markup("")
    note = (
        f"Beam search with a beam of {tree.search.beam}. The chosen hypothesis has log p = "
        f"{hypothesis.log_probability:.3f} and score {hypothesis.score:.3f}: log p divided by "
        f"((5 + length) / 6)^{tree.search.length_penalty:g}."
    )
    to_tokens = trace.model.target_tokenizer.ids_to_tokens
    unpruned = [node for node in tree.nodes if node.state != "pruned"]
    content = [tree_picture(unpruned, to_tokens)]
    pruned = len(tree.nodes) - len(unpruned)
    if pruned > 0 and len(tree.nodes) <= MAX_TREE_NODES:
        title = tag("summary", f"with {pruned} pruned nodes")
        content.append(tag("details", title, tree_picture(tree.nodes, to_tokens)))
    return _section("Beam search", note, *content)


def _heads(trace: ForwardPass) -> Markup:
    if predictions_of(trace) is None:
        return Markup("")
    heads = sorted(head_costs(trace), key=lambda head: -(head.cost or 0.0))
    if not heads:
        return Markup("")
    largest = max(abs(head.cost or 0.0) for head in heads) or 1.0
    changes = any(head.prediction_without for head in heads)
    rows = [
        [
            tag("code", str(head.intervention)),
            _bar((head.cost or 0.0) / largest, "c2"),
            f"{head.cost or 0.0:.3f}",
            f"{head.entropy:.2f}",
            *([tag("code", head.prediction_without or "")] if changes else []),
        ]
        for head in heads
    ]
    note = (
        "Each head is switched off in turn; its cost is the drop in log p of the output. A head with low entropy is "
        "not necessarily one that matters."
    )
    columns = ["head", "", "cost", "entropy", *(["prediction without it"] if changes else [])]
    rest = ""
    if len(rows) > MAX_OPEN_HEADS:
        title = tag("summary", f"{len(rows) - MAX_OPEN_HEADS} more heads with lower cost")
        rest = tag("details", title, table(columns, rows[MAX_OPEN_HEADS:], class_="numbers heads"))
    return _section("Head costs", note, table(columns, rows[:MAX_OPEN_HEADS], class_="numbers heads"), rest)


def _gradients(trace: ForwardPass) -> Markup:
    if predictions_of(trace) is None:
        return Markup("")
    gradients = gradient_norms(trace)
    largest = max((module.grad_norm for module in gradients.modules), default=1.0) or 1.0
    rows = [
        [
            tag("code", module.module),
            _bar(module.grad_norm / largest),
            f"{module.grad_norm:.3f}",
            f"{module.relative_grad_norm:.4f}",
            f"{module.parameters:,}",
        ]
        for module in gradients.modules
    ]
    head = ["module", "", "grad norm", "relative to weights", "parameters"]
    note = f"Gradient norm of each module for the mean loss of this output, {gradients.loss:.3f}."
    content = tag("details", tag("summary", "All modules"), table(head, rows, class_="numbers heads"))
    return _section("Gradients", note, content)
