"""A walk through a trace in the terminal: from the text to the tokens, through every layer, to what was chosen."""

import math
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text
from rich.tree import Tree as RichTree

from regard.interpret.heads import heads
from regard.interpret.points import Point
from regard.interpret.render.matrix import bar, matrix, number, table, vector
from regard.interpret.render.sheets import Cell, Sheet, sheets
from regard.interpret.trace import Trace
from regard.interpret.tree import Node, Tree
from regard.interpret.units import units_on

CAUTION = (
    "Attention is not explanation: weights say where a head looks, not what the output depends on. The cost of leaving "
    "a word out, or of switching a head off, does."
)
SHORT = {"attention": "self", "cross_attention": "cross", "feed_forward": "ff"}
PARTS = {"attention": "self-attention", "cross_attention": "cross-attention"}


def walk(trace: Trace) -> Iterator[RenderableType]:
    """Everything, in the order in which it happens."""
    yield from _header(trace)
    yield from _tokens(trace)
    for stack in ("encoder", "decoder"):
        if any(point.stack == stack for point in trace.points.values()):
            yield from _stack(trace, stack)
    for sheet in sheets(trace):
        yield from _sheet(sheet)
    if trace.steps:
        yield from _steps(trace)
    if trace.tree is not None:
        yield from _tree(trace, trace.tree)
    if trace.subject.config.model.has_alignment:
        yield from _alignment(trace)
    if any(point.point == "weights" for point in trace.points.values()) and trace.predicted is not None:
        yield from _heads(trace)


def heading(text: str, note: str = "") -> Text:
    """A line above a section."""
    return Text.assemble("\n", (text, "bold"), ("  " + note if note else "", "dim"))


def _header(trace: Trace) -> Iterator[RenderableType]:
    about = trace.outline()["model"]
    arrow = {"translation": " → ", "continuation": " ⋯ "}.get(trace.kind)
    yield Text.assemble((trace.text, "bold"), arrow or "", (trace.output if arrow else "", "bold cyan"))
    layers = f"{about['layers']} layers"
    if trace.kind == "translation":
        layers = f"{about['layers']} + {about['decoder_layers']} layers"
    several = f", {about['heads']} heads" if about["heads"] else ""
    size = f"{about['parameters']:,} parameters"
    yield Text(f"{about['name']}: {about['family']}, {layers}{several}, width {about['width']}, {size}", style="dim")
    if trace.asked is not None:
        yield Text.assemble(("asked about: ", "dim"), trace.asked)
    for note in trace.notes:
        yield Text(note, style="yellow")


def _tokens(trace: Trace) -> Iterator[RenderableType]:
    line = trace.source or trace.target
    if line is None:
        return
    words = {place: word.text for word in line.words for place in word.tokens}
    yield heading("Tokens", "the text in pieces of the vocabulary, each with its id")
    depth = trace.written.facts.get("depth")
    made = table("token", "word", "id", *(["depth in the tree"] if depth else []), left=2)
    for place, (token, ident) in enumerate(zip(line.tokens, line.ids, strict=True)):
        made.add_row(Text(token), Text(words[place]), str(ident), *([str(depth[place])] if depth else []))
    yield made
    built = [building for building in trace.merges if len(building.stages) > 2]
    if built:
        yield Text("Merges, the best rank first:", style="dim")
        for building in built:
            yield Text("  " + "  →  ".join(" ".join(stage) for stage in building.stages))


def _stack(trace: Trace, stack: str) -> Iterator[RenderableType]:
    tokens = "source" if stack == "encoder" else "target"
    labels = trace.labels(tokens) or []
    reads = "reads the source once" if stack == "encoder" else "reads what was written so far, and predicts"
    yield heading(stack.capitalize(), reads)
    yield from _embedding(trace, stack, labels)
    layers = sorted(
        {point.layer for point in trace.points.values() if point.stack == stack and point.layer is not None}
    )
    for layer in layers:
        yield heading(f"{stack.capitalize()}, layer {layer}")
        for part in ("attention", "cross_attention"):
            weights = trace.points.get(f"{stack}.{layer}.{part}.weights")
            if weights is not None:
                yield from _attention(trace, weights, labels)
        if f"{stack}.{layer}.attention_residual.sum" in trace.points:
            yield Text("norms, and hidden units that are on:", style="italic")
            yield _layer(trace, f"{stack}.{layer}", labels)
        yield from _gates(trace, stack, layer, labels)
    across = trace.points.get(f"{stack}.cross_attention.weights")
    if across is not None:
        yield from _attention(trace, across, labels)


def _embedding(trace: Trace, stack: str, labels: list[str]) -> Iterator[RenderableType]:
    shown = ("lookup", "scaled", "positions", "depth", "sum")
    names = [name for name in shown if f"{stack}.embedding.{name}" in trace.points]
    factor = trace.points[f"{stack}.embedding.scaled"].what
    titles = {"lookup": "embedding", "scaled": factor, "positions": "position", "depth": "depth", "sum": "sum"}
    made = table("token", *(titles[name] for name in names), left=1)
    values = {name: trace.whole(f"{stack}.embedding.{name}").tolist() for name in names}
    for place, label in enumerate(labels):
        made.add_row(Text(label), *(vector(values[name][place], 3) for name in names))
    yield made


def _attention(trace: Trace, point: Point, labels: list[str]) -> Iterator[RenderableType]:
    """Where each token looks most, head by head; of the first head, all weights."""
    values = trace.whole(point.name).tolist()  # (H, T, S)
    keys = trace.labels(point.axes[-1]) or [f"mixture {n}" for n in range(len(values[0][0]))]
    made = table("token", *(f"head {n}" for n in range(len(values))))
    for place, label in enumerate(labels):
        cells = []
        for head in values:
            row = head[place]
            most = max(range(len(row)), key=row.__getitem__)
            cells.append(Text(f"{keys[most]} {row[most]:.2f}", style="" if row[most] > 0.5 else "dim"))
        made.add_row(Text(label), *cells)
    yield Text(f"{PARTS[point.part]}: where each token looks most, with its weight", style="italic")
    yield made
    if point.layer == 0:
        yield from _one_query(trace, point, labels, keys)
    if point.layer == 0 or point.layer is None:
        yield Text(f"{point.name}[0]: all weights of one head", style="italic")
        yield matrix(labels, keys, values[0])


def _one_query(trace: Trace, point: Point, labels: list[str], keys: list[str]) -> Iterator[RenderableType]:
    """How the token in the middle looks, in the first head: from its query to what it takes along."""
    if point.axes[-1] == "mixture":
        return
    place, row = point.name.removesuffix(".weights"), len(labels) // 2
    names = ("q", "k", "v", "scores", "masked", "weights", "head_outputs")
    q, k, v, scores, scaled, weights, taken = (trace.whole(f"{place}.{name}")[0].tolist() for name in names)
    scaling, taking = (trace.points[f"{place}.{name}"].what for name in ("scaled", "head_outputs"))
    how = f"how {labels[row]} looks, by softmax of q · k {scaling}; its q is {vector(q[row], 3).strip()}"
    yield Text(f"{place}, head 0: {how}", style="italic")
    made = table("key", "k", "q · k", "scaled", "weight", "v")
    for n, key in enumerate(keys):
        if not math.isinf(scaled[row][n]):
            found = (f"{values[row][n]:.2f}" for values in (scores, scaled, weights))
            made.add_row(Text(key), vector(k[n], 3), *found, vector(v[n], 3))
    yield made
    yield Text(f"{taking} = {vector(taken[row], 3).strip()}", style="dim")


def _layer(trace: Trace, place: str, labels: list[str]) -> RenderableType:
    """What each sub-layer's norm measured, and how many hidden units are on."""
    parts = [
        part
        for part in ("attention", "cross_attention", "feed_forward")
        if f"{place}.{part}_residual.sum" in trace.points
    ]
    columns, cells = list[str](), list[list[str]]()
    for part in parts:
        for name in ("mean", "deviation"):
            point = f"{place}.{part}_residual.{name}"
            if point in trace.points:
                columns.append(f"{SHORT[part]} {name}")
                cells.append([f"{value:.3f}" for value in trace.whole(point).tolist()])
    units = units_on(trace, place)
    if units is not None:
        columns.append(f"units on, of {units.units}")
        cells.append([str(count) for count in units.on])
    made = table("token", *columns)
    for n, label in enumerate(labels):
        made.add_row(Text(label), *(column[n] for column in cells))
    return made


def _gates(trace: Trace, stack: str, layer: int, labels: list[str]) -> Iterator[RenderableType]:
    """The mean of each gate at each token, and the size of the state."""
    for part in ("forwards", "backwards"):
        gates = [point for point in trace.points.values() if point.name.startswith(f"{stack}.{layer}.{part}.")]
        if not gates:
            continue
        made = table("token", *(_gate_title(point) for point in gates))
        values = [trace.whole(point.name) for point in gates]
        means = [v.mean(-1) if p.point.endswith("gate") else v.norm(dim=-1) for p, v in zip(gates, values, strict=True)]
        for n, label in enumerate(labels):
            made.add_row(Text(label), *(f"{float(column[n]):.3f}" for column in means))
        yield Text(f"{part}: gates as their mean over units, states as their length", style="italic")
        yield made


def _gate_title(point: Point) -> str:
    return point.point.replace("_", " ") if point.point.endswith("gate") else f"|{point.point}|"


def _sheet(sheet: Sheet) -> Iterator[RenderableType]:
    """A table whose shares are numbers with bars before them."""
    yield heading(sheet.title, sheet.note)
    made = table()
    for name, kind in sheet.columns.items():
        if kind is float:
            made.add_column("")
        made.add_column(Text(name), justify="right" if kind is float else "left", no_wrap=True)
    kinds = list(sheet.columns.values())
    for row in sheet.rows:
        made.add_row(*(shown for cell, kind in zip(row, kinds, strict=True) for shown in _cells(cell, kind)))
    yield made


def _cells(cell: Cell, kind: type[str] | type[float]) -> list[Text]:
    if kind is float:
        return [Text(), Text()] if cell is None else [bar(float(cell), 12), Text(f"{float(cell):.3f}")]
    return [Text("" if cell is None else str(cell))]


def _steps(trace: Trace) -> Iterator[RenderableType]:
    yield heading("Step by step", "what was read, what could follow, and what did; entropy in nats")
    made = table("step", "read", "chosen", "", "p", "entropy", "others", left=3)
    made.columns[-1].justify = "left"
    for step in trace.steps:
        others = [one for one in step.candidates if one.id != step.id][:3]
        made.add_row(
            str(step.step),
            Text(step.read),
            Text(step.chosen, style="dim" if step.given else "bold cyan"),
            bar(step.probability, 12),
            f"{step.probability:.3f}",
            f"{step.entropy:.2f}",
            Text("  ".join(f"{one.token} {number(one.probability, 3)}" for one in others)),
        )
    yield made
    total = trace.log_probability
    yield Text(f"log p = {total:.3f} in all, {total / len(trace.steps):.3f} a token", style="dim")


def _tree(trace: Trace, tree: Tree) -> Iterator[RenderableType]:
    """What was finished and the way there; what was pruned is counted."""
    search = tree.search
    note = f"a beam of {search.width}; log p → worth after the length penalty (α = {search.length_penalty:g})"
    yield heading("Search", note)
    children: dict[int, list[Node]] = {}
    for node in tree.nodes[1:]:
        children.setdefault(node.parent or 0, []).append(node)
    alive = {"finished", "cut", "open"}
    shown: set[int] = set()
    for node in tree.nodes:
        if node.state in alive:
            up: Node | None = node
            while up is not None and up.number not in shown:
                shown.add(up.number)
                up = None if up.parent is None else tree.nodes[up.parent]
    root = RichTree(Text(trace.read[0] if trace.read else ""), guide_style="dim")
    _grow(trace, root, 0, children, shown)
    yield root


def _grow(trace: Trace, branch: RichTree, number_: int, children: dict[int, list[Node]], shown: set[int]) -> None:
    pruned = 0
    for node in children.get(number_, []):
        if node.number not in shown:
            pruned += 1
            continue
        piece = trace.subject.target.ids_to_tokens([node.token or 0])[0]
        style = "bold cyan" if node.best else ""
        worth = f"  → {node.worth:.2f} {node.state}" if node.state in ("finished", "cut", "open") else ""
        label = Text.assemble((piece, style), (f"  {node.score:.2f}", "dim"), (worth, style))
        _grow(trace, branch.add(label), node.number, children, shown)
    if pruned:
        branch.add(Text(f"{pruned} pruned", style="dim"))


def _alignment(trace: Trace) -> Iterator[RenderableType]:
    found = trace.alignment()
    chosen = f"{found.chosen.point.removesuffix('.weights')}[{found.chosen.head}]"
    yield heading("Alignment", f"by {chosen}, which agrees most ({found.chosen.agreement:.2f}) with leaving words out")
    made = table("word", "goes with", "weight", left=2)
    for target, source, weight in found.pairs:
        made.add_row(Text(found.target[target].text), Text(found.source[source].text), f"{weight:.2f}")
    yield made
    rows = [n for n, word in enumerate(found.target) if not word.special]
    columns = [n for n, word in enumerate(found.source) if not word.special]
    yield Text("What leaving a source word out costs each target word, in log p:", style="italic")
    yield matrix(
        [found.target[n].text for n in rows],
        [found.source[n].text for n in columns],
        [[float(found.costs[n, m]) for m in columns] for n in rows],
    )
    yield Text(CAUTION, style="dim")


def _heads(trace: Trace) -> Iterator[RenderableType]:
    yield heading("Heads", "how spread each one's attention is, and by how much log p falls when it is off")
    found = sorted(heads(trace), key=lambda head: -(head.cost or 0.0))
    differ = any(head.other for head in found)
    made = table("head", "entropy", "cost", "")
    if differ:
        made.add_column("without it", no_wrap=True)
    largest = max((abs(head.cost or 0.0) for head in found), default=1.0) or 1.0
    for head in found[:12]:
        cost = head.cost or 0.0
        cells = [Text(f"{head.entropy:.2f}"), Text(f"{cost:.2f}"), bar(max(0.0, cost) / largest)]
        made.add_row(Text(str(head.change)), *cells, *([Text(head.other or "")] if differ else []))
    yield made
    if len(found) > 12:
        yield Text(f"and {len(found) - 12} more that cost less", style="dim")
