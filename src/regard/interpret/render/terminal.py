"""Render a whole trace in the terminal: tokens, every layer, decoding steps, search, alignment, head costs."""

import math
from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from regard.interpret.attribution import align, head_costs
from regard.interpret.decode import SearchNode, SearchTree
from regard.interpret.forward_pass import ForwardPass, model_summary, notes
from regard.interpret.predictions import Step, decoding_steps, output_log_probability, predictions_of
from regard.interpret.render.tables import (
    ATTENTION_TITLES,
    CAUTION,
    Cell,
    Sheet,
    bar,
    encoder_sheets,
    format_experts,
    format_number,
    format_vector,
    matrix_table,
)
from regard.nn.taps import Point
from regard.tables import new_table

PART_COLUMNS = {"attention": "self", "cross_attention": "cross", "feed_forward": "ff"}
MAX_TERMINAL_HEADS = 12


def render_trace(trace: ForwardPass) -> Iterator[RenderableType]:
    """Render everything, in the order of computation."""
    yield from _header(trace)
    yield from _tokens(trace)
    for stack in ("encoder", "decoder"):
        if any(point.stack == stack for point in trace.points.values()):
            yield from _stack(trace, stack)
    for sheet in encoder_sheets(trace):
        yield from _sheet(sheet)
    steps = decoding_steps(trace)
    if steps:
        yield from _steps(trace, steps)
    if trace.tree is not None:
        yield from _search_tree(trace, trace.tree)
    if trace.model.config.model.has_alignment:
        yield from _alignment(trace)
    if any(point.point == "weights" for point in trace.points.values()) and predictions_of(trace) is not None:
        yield from _heads(trace)


def _heading(text: str, note: str = "") -> Text:
    return Text.assemble("\n", (text, "bold"), ("  " + note if note else "", "dim"))


def _header(trace: ForwardPass) -> Iterator[RenderableType]:
    model = model_summary(trace)
    arrow = {"translation": " → ", "continuation": " ⋯ "}.get(trace.kind)
    yield Text.assemble((trace.text, "bold"), arrow or "", (trace.output if arrow else "", "bold cyan"))
    layers = f"{model['layers']} layer{'' if model['layers'] == 1 else 's'}"
    if trace.kind == "translation":
        layers = f"{model['layers']} + {model['decoder_layers']} layers"
    heads = f", {model['heads']} head{'' if model['heads'] == 1 else 's'}" if model["heads"] else ""
    size = f"{model['parameters']:,} parameters"
    yield Text(f"{model['name']}: {model['family']}, {layers}{heads}, width {model['width']}, {size}", style="dim")
    if trace.expected is not None:
        yield Text.assemble(("target: ", "dim"), trace.expected)
    for note in notes(trace):
        yield Text(note, style="yellow")


def _tokens(trace: ForwardPass) -> Iterator[RenderableType]:
    text = trace.source or trace.target
    if text is None:
        return
    words = {index: word.text for word in text.words for index in word.tokens}
    yield _heading("Tokens", "the text as tokens of the vocabulary, each with the word that it is part of and its id")
    depth = trace.decoded.features.get("depth")
    table = new_table("token", "word", "id", *(["depth in the tree"] if depth else []), left=2)
    for index, (token, token_id) in enumerate(zip(text.tokens, text.ids, strict=True)):
        table.add_row(Text(token), Text(words[index]), str(token_id), *([str(depth[index])] if depth else []))
    yield table
    merged = [word for word in trace.merges if len(word.stages) > 2]
    if merged:
        yield Text("BPE merges, best rank first:", style="dim")
        for word in merged:
            yield Text("  " + "  →  ".join(" ".join(stage) for stage in word.stages))


def _stack(trace: ForwardPass, stack: str) -> Iterator[RenderableType]:
    labels = trace.labels("source" if stack == "encoder" else "target") or []
    note = "processes the source once" if stack == "encoder" else "reads the tokens so far and predicts the next one"
    yield _heading(stack.capitalize(), note)
    yield from _embedding(trace, stack, labels)
    layers = sorted(
        {point.layer for point in trace.points.values() if point.stack == stack and point.layer is not None}
    )
    for layer in layers:
        yield _heading(f"{stack.capitalize()}, layer {layer}")
        for part in ATTENTION_TITLES:
            weights = trace.points.get(f"{stack}.{layer}.{part}.weights")
            if weights is not None:
                yield from _attention(trace, weights, labels)
        if f"{stack}.{layer}.attention_residual.sum" in trace.points:
            units = "experts" if f"{stack}.{layer}.feed_forward.gates" in trace.points else "active hidden units"
            yield Text(f"norms, and {units}:", style="italic")
            yield _norms_and_units(trace, f"{stack}.{layer}", labels)
        yield from _gates(trace, stack, layer, labels)
    recurrent_attention = trace.points.get(f"{stack}.cross_attention.weights")
    if recurrent_attention is not None:
        yield from _attention(trace, recurrent_attention, labels)


def _embedding(trace: ForwardPass, stack: str, labels: list[str]) -> Iterator[RenderableType]:
    scale = trace.points[f"{stack}.embedding.scaled"].description
    titles = {"lookup": "embedding", "scaled": scale, "positions": "position", "depth": "depth", "sum": "sum"}
    names = [name for name in titles if f"{stack}.embedding.{name}" in trace.points]
    table = new_table("token", *(titles[name] for name in names), left=1)
    values = {name: trace.activation(f"{stack}.embedding.{name}").tolist() for name in names}
    for index, label in enumerate(labels):
        table.add_row(Text(label), *(format_vector(values[name][index], 3) for name in names))
    yield table


def _attention(trace: ForwardPass, point: Point, labels: list[str]) -> Iterator[RenderableType]:
    """The key with the largest weight for each token and head; in the first layer, all weights of the first head."""
    values = trace.activation(point.name).tolist()  # (H, T, S)
    keys = trace.labels(point.axes[-1]) or [f"mixture {n}" for n in range(len(values[0][0]))]
    table = new_table("token", *(f"head {n}" for n in range(len(values))))
    for index, label in enumerate(labels):
        cells = []
        for head in values:
            row = head[index]
            largest = max(range(len(row)), key=row.__getitem__)
            cells.append(Text(f"{keys[largest]} {row[largest]:.2f}", style="" if row[largest] > 0.5 else "dim"))
        table.add_row(Text(label), *cells)
    yield Text(f"{ATTENTION_TITLES[point.part]}: the key with the largest weight", style="italic")
    yield table
    if point.layer == 0:
        yield from _attention_of_one_query(trace, point, labels, keys)
    if point.layer == 0 or point.layer is None:
        yield Text(f"{point.name}[0]: all weights of one head", style="italic")
        yield matrix_table(labels, keys, values[0])


def _attention_of_one_query(
    trace: ForwardPass, point: Point, labels: list[str], keys: list[str]
) -> Iterator[RenderableType]:
    """The attention of the middle token in the first head, from its query to its output."""
    if point.axes[-1] == "mixture":
        return
    place, row = point.name.removesuffix(".weights"), len(labels) // 2
    names = ("q", "k", "v", "scores", "masked", "weights", "head_outputs")
    q, k, v, scores, scaled, weights, outputs = (trace.activation(f"{place}.{name}")[0].tolist() for name in names)
    scaling, output = (trace.points[f"{place}.{name}"].description for name in ("scaled", "head_outputs"))
    query = f"query {labels[row]}, softmax of {scaling}; q = {format_vector(q[row], 3).strip()}"
    yield Text(f"{place}, head 0: {query}", style="italic")
    table = new_table("key", "k", "q · k", "scaled", "weight", "v")
    for n, key in enumerate(keys):
        if not math.isinf(scaled[row][n]):
            numbers = (f"{values[row][n]:.2f}" for values in (scores, scaled, weights))
            table.add_row(Text(key), format_vector(k[n], 3), *numbers, format_vector(v[n], 3))
    yield table
    yield Text(f"{output} = {format_vector(outputs[row], 3).strip()}", style="dim")


def _norms_and_units(trace: ForwardPass, place: str, labels: list[str]) -> RenderableType:
    columns, cells = list[str](), list[list[str]]()
    for part, short in PART_COLUMNS.items():
        for name in ("mean", "deviation"):
            point = f"{place}.{part}_residual.{name}"
            if point in trace.points:
                columns.append(f"{short} {name}")
                cells.append([f"{value:.3f}" for value in trace.activation(point).tolist()])
    units = trace.active_units(place)
    if units is not None:
        columns.append(f"active units of {units.units}")
        cells.append([str(count) for count in units.active])
    experts = trace.chosen_experts(place)
    if experts is not None:
        columns.append("experts and gates")
        cells.append([format_experts(gates) for gates in experts])
    table = new_table("token", *columns)
    for n, label in enumerate(labels):
        table.add_row(Text(label), *(column[n] for column in cells))
    return table


def _gates(trace: ForwardPass, stack: str, layer: int, labels: list[str]) -> Iterator[RenderableType]:
    """The mean of each gate and the norm of each state, per token."""
    for part in ("forwards", "backwards"):
        gates = [point for point in trace.points.values() if point.name.startswith(f"{stack}.{layer}.{part}.")]
        if not gates:
            continue
        table = new_table("token", *(_gate_title(point) for point in gates))
        values = [trace.activation(point.name) for point in gates]
        columns = [
            value.mean(-1) if gate.point.endswith("gate") else value.norm(dim=-1)
            for gate, value in zip(gates, values, strict=True)
        ]
        for n, label in enumerate(labels):
            table.add_row(Text(label), *(f"{float(column[n]):.3f}" for column in columns))
        yield Text(f"{part}: mean of each gate over units, norm of each state", style="italic")
        yield table


def _gate_title(point: Point) -> str:
    return point.point.replace("_", " ") if point.point.endswith("gate") else f"|{point.point}|"


def _sheet(sheet: Sheet) -> Iterator[RenderableType]:
    """A table whose fractions are shown as bars and numbers."""
    yield _heading(sheet.title, sheet.note)
    table = new_table()
    for name, kind in sheet.columns.items():
        if kind is float:
            table.add_column("")
        table.add_column(Text(name), justify="right" if kind is float else "left", no_wrap=True)
    kinds = list(sheet.columns.values())
    for row in sheet.rows:
        table.add_row(*(text for cell, kind in zip(row, kinds, strict=True) for text in _sheet_cells(cell, kind)))
    yield table


def _sheet_cells(cell: Cell, kind: type[str] | type[float]) -> list[Text]:
    if kind is float:
        return [Text(), Text()] if cell is None else [bar(float(cell), 12), Text(f"{float(cell):.3f}")]
    return [Text("" if cell is None else str(cell))]


def _steps(trace: ForwardPass, steps: list[Step]) -> Iterator[RenderableType]:
    yield _heading("Decoding steps", "input token, next token and alternatives; entropy in nats")
    table = new_table("step", "input", "token", "", "p", "entropy", "others", left=3)
    table.columns[-1].justify = "left"
    for step in steps:
        others = [candidate for candidate in step.candidates if candidate.id != step.id][:3]
        table.add_row(
            str(step.step),
            Text(step.input_token),
            Text(step.token, style="dim" if step.forced else "bold cyan"),
            bar(step.probability, 12),
            f"{step.probability:.3f}",
            f"{step.entropy:.2f}",
            Text("  ".join(f"{other.token} {format_number(other.probability, 3)}" for other in others)),
        )
    yield table
    total = output_log_probability(trace)
    yield Text(f"log p = {total:.3f} in total, {total / len(steps):.3f} per token", style="dim")


def _search_tree(trace: ForwardPass, tree: SearchTree) -> Iterator[RenderableType]:
    """The paths to finished hypotheses; pruned nodes are only counted."""
    search = tree.search
    note = f"beam of {search.beam}; log p → score with length penalty {search.length_penalty:g}"
    yield _heading("Beam search", note)
    children: dict[int, list[SearchNode]] = {}
    for node in tree.nodes[1:]:
        children.setdefault(node.parent or 0, []).append(node)
    shown: set[int] = set()
    for node in tree.nodes:
        if node.state in ("finished", "cut", "open"):
            ancestor: SearchNode | None = node
            while ancestor is not None and ancestor.number not in shown:
                shown.add(ancestor.number)
                ancestor = None if ancestor.parent is None else tree.nodes[ancestor.parent]
    table = new_table("log p", "score", "", "tokens", left=0)
    table.columns[-1].justify = "left"
    table.columns[-1].no_wrap = False  # deep trees are cut there, not in the numbers
    table.add_row("", "", "", Text(trace.decoder_input[0] if trace.decoder_input else ""))
    _add_branches(trace, table, 0, "", children, shown)
    yield table


def _add_branches(
    trace: ForwardPass, table: Table, parent: int, guides: str, children: dict[int, list[SearchNode]], shown: set[int]
) -> None:
    """Add a row for each node below `parent`, whose own guides are `guides`."""
    nodes = [node for node in children.get(parent, []) if node.number in shown]
    pruned = len(children.get(parent, [])) - len(nodes)
    for node in nodes:
        is_last = node is nodes[-1] and not pruned
        token = trace.model.target_tokenizer.ids_to_tokens([node.token_id or 0])[0]
        style = "bold cyan" if node.on_best_path else ""
        is_end = node.state in ("finished", "cut", "open")
        table.add_row(
            Text(f"{node.log_probability:.2f}", style="dim"),
            Text(f"{node.score:.2f}" if is_end else "", style=style),
            Text(node.state if is_end else "", style=style),
            _branch(guides + ("└ " if is_last else "├ "), token, style),
        )
        _add_branches(trace, table, node.number, guides + ("  " if is_last else "│ "), children, shown)
    if pruned:
        table.add_row("", "", "", _branch(f"{guides}└ ", f"{pruned} pruned", "dim"))


def _branch(guides: str, text: str, style: str) -> Text:
    return Text.assemble((guides, "dim"), (text, style), no_wrap=True, overflow="ellipsis")


def _alignment(trace: ForwardPass) -> Iterator[RenderableType]:
    alignment = align(trace)
    chosen = f"{alignment.chosen.point.removesuffix('.weights')}[{alignment.chosen.head}]"
    yield _heading("Alignment", f"by {chosen}, which agrees best with erasure ({alignment.chosen.agreement:.2f})")
    table = new_table("target", "source", "weight", left=2)
    for target, source, weight in alignment.pairs:
        table.add_row(Text(alignment.target[target].text), Text(alignment.source[source].text), f"{weight:.2f}")
    yield table
    rows = [n for n, word in enumerate(alignment.target) if not word.special]
    columns = [n for n, word in enumerate(alignment.source) if not word.special]
    yield Text("Cost of leaving out each source word for each target word, in log p:", style="italic")
    yield matrix_table(
        [alignment.target[n].text for n in rows],
        [alignment.source[n].text for n in columns],
        [[float(alignment.costs[n, m]) for m in columns] for n in rows],
    )
    yield Text(CAUTION, style="dim")


def _heads(trace: ForwardPass) -> Iterator[RenderableType]:
    yield _heading("Head costs", "entropy of each head's attention, and the drop in log p when it is off")
    heads = sorted(head_costs(trace), key=lambda head: -(head.cost or 0.0))
    changes = any(head.prediction_without for head in heads)
    table = new_table("head", "entropy", "cost", "")
    if changes:
        table.add_column("prediction without it", no_wrap=True)
    largest = max((abs(head.cost or 0.0) for head in heads), default=1.0) or 1.0
    for head in heads[:MAX_TERMINAL_HEADS]:
        cost = head.cost or 0.0
        cells = [Text(f"{head.entropy:.2f}"), Text(f"{cost:.2f}"), bar(max(0.0, cost) / largest)]
        table.add_row(Text(str(head.intervention)), *cells, *([Text(head.prediction_without or "")] if changes else []))
    yield table
    if len(heads) > MAX_TERMINAL_HEADS:
        yield Text(f"and {len(heads) - MAX_TERMINAL_HEADS} more with lower cost", style="dim")
