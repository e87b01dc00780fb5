"""The sections of a trace's page, in the order in which things happen."""

import math
from collections.abc import Sequence
from typing import Any

from regard.html import Markup, join, table, tag
from regard.interpret.alignment import METHOD, Alignment
from regard.interpret.heads import heads
from regard.interpret.render.pictures import alignment_picture, heat, tree_picture
from regard.interpret.render.sheets import Sheet, sheets
from regard.interpret.render.terminal import CAUTION
from regard.interpret.trace import Trace
from regard.interpret.units import units_on
from regard.interpret.words import Line

BRANCHES = 400  # of a tree past which what was pruned is not drawn
EMBEDDED = 300_000  # numbers that a page holds at most
POINTS = ("scores", "scaled", "masked", "weights")
PARTS = {"attention": "self-attention", "cross_attention": "cross-attention"}


def all_sections(trace: Trace) -> list[Markup]:
    """Everything that this network has."""
    return [
        _header(trace),
        _tokens(trace),
        *(_sheet(sheet) for sheet in sheets(trace)),
        _steps(trace),
        _alignment(trace),
        _attention(trace),
        _layers(trace),
        _gates(trace),
        _search(trace),
        _heads(trace),
        _gradients(trace),
    ]


def _section(title: str, note: str, *content: str) -> Markup:
    return tag("section", tag("h2", title), tag("p", note, class_="note"), *content)


def _header(trace: Trace) -> Markup:
    about = trace.outline()["model"]
    sizes = [f"{about['layers']} layers"]
    if trace.kind == "translation":
        sizes = [f"{about['layers']} + {about['decoder_layers']} layers"]
    if about["heads"]:
        sizes.append(f"{about['heads']} heads")
    sizes += [f"width {about['width']}", f"{about['parameters']:,} parameters"]
    facts = f"{about['name']} · {', '.join(sizes)}"
    what = {"translation": "Translation", "continuation": "Continuation", "encoding": "Encoding"}[trace.kind]
    title = tag("h1", trace.text, dir="auto")
    output = tag("p", trace.output, class_="output", dir="auto") if trace.steps else ""
    asked = tag("p", f"asked about: {trace.asked}", class_="summary", dir="auto") if trace.asked is not None else ""
    notes = [tag("p", note, class_="note warning") for note in trace.notes]
    forced = " of a target that was given" if trace.forced is not None and trace.steps else ""
    article = "an" if about["family"][0] in "aeiou" else "a"
    kind = tag("p", f"{what}{forced} by {article} {about['family']}", class_="kind")
    return tag("header", kind, title, output, asked, tag("p", facts, class_="summary"), *notes)


def _tokens(trace: Trace) -> Markup:
    rows: list[Markup] = []
    written = "text" if trace.kind == "continuation" else "written"
    for name, line in (("read", trace.source), (written, trace.target)):
        if line is not None:
            depths = trace.written.facts.get("depth") if line is trace.source else None
            rows.append(tag("div", tag("h3", name), _chips(line, depths), class_="side"))
    built = [building for building in trace.merges if len(building.stages) > 2]
    merges = ""
    if built:
        lines = [tag("li", " → ".join(" ".join(stage) for stage in building.stages)) for building in built]
        merges = tag("details", tag("summary", "How the pieces were merged"), tag("ol", *lines, class_="merges"))
    note = "The text in pieces of the vocabulary, each with its id; pieces of one word stand together."
    if "depth" in trace.written.facts:
        note += " Below what was read, the depth of each piece's word in the tree of the parse."
    return _section("Tokens", note, *rows, merges)


def _chips(line: Line, depths: Sequence[int] | None = None) -> Markup:
    words = []
    for word in line.words:
        tokens = [
            tag(
                "span",
                tag("b", line.tokens[n]),
                tag("i", str(line.ids[n])),
                tag("i", f"depth {depths[n]}") if depths is not None else "",
                class_="token",
            )
            for n in word.tokens
        ]
        words.append(tag("span", *tokens, class_="word special" if word.special else "word"))
    return tag("div", *words, class_="tokens", dir="auto")


def _steps(trace: Trace) -> Markup:
    if not trace.steps:
        return Markup("")
    rows = []
    for step in trace.steps:
        others = [one for one in step.candidates if one.id != step.id and one.probability >= 0.001][:4]
        chips = [tag("span", one.token, " ", tag("i", f"{one.probability:.3f}"), class_="other") for one in others]
        rows.append(
            [
                str(step.step),
                tag("code", step.read),
                tag("code", step.chosen, class_="given" if step.given else "chosen"),
                _bar(step.probability),
                f"{step.probability:.3f}",
                f"{step.entropy:.2f}",
                join(*chips),
            ]
        )
    total = trace.log_probability
    note = (
        "At each step the decoder reads one more token and gives every token of the vocabulary a probability; what was "
        f"chosen came next. In all, log p = {total:.3f}, which is {total / len(rows):.3f} a token. Entropy in nats."
    )
    head = ["step", "read", "chosen", "", "probability", "entropy", "others"]
    return _section("Step by step", note, table(head, rows, class_="steps"))


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


def _bar(share: float, colour: str = "c1") -> Markup:
    return tag("span", tag("span", style=f"width:{100 * max(0.0, min(1.0, share)):.1f}%"), class_=f"bar {colour}")


def _alignment(trace: Trace) -> Markup:
    if not trace.subject.config.model.has_alignment or trace.source is None:
        return Markup("")
    found = trace.alignment()
    chosen = f"{found.chosen.point.removesuffix('.weights')}[{found.chosen.head}]"
    note = f"Words joined by {chosen}: {METHOD}. Here the two agree by {found.chosen.agreement:.2f} of 1."
    pair = tag("div", _words_heat(found, "attention"), _words_heat(found, "costs"), class_="pair")
    return _section("Alignment", note, alignment_picture(found), pair, tag("p", CAUTION, class_="note caution"))


def _words_heat(found: Alignment, which: str) -> Markup:
    rows = [n for n, word in enumerate(found.target) if not word.special]
    columns = [n for n, word in enumerate(found.source) if not word.special]
    values = found.weights if which == "attention" else found.costs
    cells = [[float(values[n, m]) for m in columns] for n in rows]
    most = 1.0 if which == "attention" else max((value for row in cells for value in row), default=1.0) or 1.0
    title = "where the head looks" if which == "attention" else "what leaving the word out costs, in log p"
    colour = "c1" if which == "attention" else "c2"
    labels = [[line[n].text for n in places] for line, places in ((found.target, rows), (found.source, columns))]
    return heat(title, labels[0], labels[1], cells, most, colour)


def _attention(trace: Trace) -> Markup:
    data = attention_data(trace)
    if not data["attentions"]:
        return Markup("")
    note = (
        "Every head of every layer: a row is a token that looks, a column one that is looked at. Choose a head to see "
        "its numbers, before and after the softmax."
    )
    cut = tag("p", data["note"], class_="note warning") if data["note"] else ""
    return _section(
        "Attention",
        note,
        cut,
        tag(
            "div",
            tag("div", class_="gallery", id="gallery"),
            tag("div", class_="detail", id="detail"),
            class_="explorer",
        ),
        tag("noscript", tag("p", "The pictures here are drawn by a script inside this page.", class_="note")),
    )


def attention_data(trace: Trace) -> dict[str, Any]:
    """The numbers of every attention, as many as a page can hold: all four points, or only weights, or the last."""
    weights = [point for point in trace.points.values() if point.point == "weights"]
    sizes = [trace.whole(point.name).numel() for point in weights]
    shown = POINTS if len(POINTS) * sum(sizes) <= EMBEDDED else ("weights",)
    note = "" if shown == POINTS else "Only weights are here: scores would make the page too large."
    while weights and len(shown) * sum(sizes) > EMBEDDED:
        weights, sizes = weights[1:], sizes[1:]
        note = "Only the weights of the last layers are here: all would make the page too large."
    found = []
    for point in weights:
        place = point.name.removesuffix(".weights")
        keys = trace.labels(point.axes[-1])
        values = {
            name: [_rounded(head) for head in trace.whole(f"{place}.{name}").tolist()]
            for name in shown
            if f"{place}.{name}" in trace.points
        }
        layer = "" if point.layer is None else f", layer {point.layer}"
        found.append(
            {
                "name": place,
                "title": f"{point.stack.capitalize()}{layer}: {PARTS[point.part]}",
                "rows": trace.labels(point.axes[1]),
                "columns": keys or [f"mixture {n}" for n in range(len(values["weights"][0][0]))],
                "points": values,
            }
        )
    return {"attentions": found, "note": note}


def _rounded(rows: list[list[float]]) -> list[list[float | None]]:
    return [[float(f"{value:.4g}") if math.isfinite(value) else None for value in row] for row in rows]


def _layers(trace: Trace) -> Markup:
    """What norms measured and how many hidden units are on."""
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
                for name, sign in (("mean", "μ"), ("deviation", "σ")):
                    point = f"{stack}.{layer}.{part}_residual.{name}"
                    if point in trace.points:
                        columns.append(f"{PARTS.get(part, 'feed-forward')} {sign}")
                        cells.append([f"{value:.3f}" for value in trace.whole(point).tolist()])
            units = units_on(trace, f"{stack}.{layer}")
            if units is not None:
                columns.append(f"hidden units on, of {units.units}")
                cells.append([str(count) for count in units.on])
            if columns:
                rows = [[tag("code", label), *(column[n] for column in cells)] for n, label in enumerate(labels)]
                title = tag("summary", f"{stack.capitalize()}, layer {layer}")
                blocks.append(
                    tag("details", title, table(["token", *columns], rows, class_="numbers"), open=not blocks)
                )
    if not blocks:
        return Markup("")
    note = "A norm brings each token's vector to mean 0 and deviation 1, then gives it a learned gain and bias."
    return _section("Norms and feed-forward", note, *blocks)


def _gates(trace: Trace) -> Markup:
    blocks = []
    for point in trace.points.values():
        if point.part in ("forwards", "backwards") and point.point.endswith(("gate", "cell", "hidden")):
            values = trace.whole(point.name)[:, :64].tolist()
            labels = trace.labels(point.axes[0]) or []
            low = 0.0 if point.point.endswith("gate") else -1.0
            cells = [[(value - low) / (1 - low) for value in row] for row in values]
            title = f"{point.name}: {point.what}"
            blocks.append(heat(title, labels, [""] * len(values[0]), cells, 1.0, "c1", small=True))
    if not blocks:
        return Markup("")
    note = (
        "Each row is a token, each column a unit (up to 64 of them): light is 0 for gates and −1 for states, dark is 1."
    )
    return _section("Gates", note, tag("div", *blocks, class_="gates"))


def _search(trace: Trace) -> Markup:
    tree = trace.tree
    if tree is None or trace.written.found is None:
        return Markup("")
    found = trace.written.found
    note = (
        f"A beam of {tree.search.width}: every beginning that was looked at. What was chosen has log p = "
        f"{found.log_probability:.3f}, and is worth {found.score:.3f}, divided by the length penalty: "
        f"((5 + length) / 6) to the power of {tree.search.length_penalty:g}."
    )
    pieces = trace.subject.target.ids_to_tokens
    few = [node for node in tree.nodes if node.state != "pruned"]
    content = [tree_picture(few, pieces)]
    pruned = len(tree.nodes) - len(few)
    if pruned > 0 and len(tree.nodes) <= BRANCHES:
        content.append(
            tag("details", tag("summary", f"with the {pruned} that were pruned"), tree_picture(tree.nodes, pieces))
        )
    return _section("Search", note, *content)


def _heads(trace: Trace) -> Markup:
    if trace.predicted is None:
        return Markup("")
    found = sorted(heads(trace), key=lambda head: -(head.cost or 0.0))
    if not found:
        return Markup("")
    largest = max(abs(head.cost or 0.0) for head in found) or 1.0
    differ = any(head.other for head in found)
    rows = [
        [
            tag("code", str(head.change)),
            _bar((head.cost or 0.0) / largest, "c2"),
            f"{head.cost or 0.0:.3f}",
            f"{head.entropy:.2f}",
            *([tag("code", head.other or "")] if differ else []),
        ]
        for head in found
    ]
    note = (
        "Each head is switched off in turn, and the output read again: what it costs is what was needed of it. A head "
        "that looks sharply (low entropy) need not be one that matters."
    )
    columns = ["head", "", "log p lost", "entropy", *(["told without it"] if differ else [])]
    rest = ""
    if len(rows) > 10:
        more = table(columns, rows[10:], class_="numbers heads")
        rest = tag("details", tag("summary", f"{len(rows) - 10} more that cost less"), more)
    return _section("What heads are worth", note, table(columns, rows[:10], class_="numbers heads"), rest)


def _gradients(trace: Trace) -> Markup:
    if trace.predicted is None:
        return Markup("")
    found = trace.gradients()
    largest = max((part.norm for part in found.parts), default=1.0) or 1.0
    rows = [
        [
            tag("code", part.part),
            _bar(part.norm / largest),
            f"{part.norm:.3f}",
            f"{part.relative:.4f}",
            f"{part.parameters:,}",
        ]
        for part in found.parts
    ]
    head = ["part", "", "norm", "over its weights'", "parameters"]
    note = (
        f"How strongly training on this output would pull each part: the gradient of its mean loss, {found.loss:.3f}."
    )
    content = tag("details", tag("summary", "All parts"), table(head, rows, class_="numbers heads"))
    return _section("Gradients", note, content)
