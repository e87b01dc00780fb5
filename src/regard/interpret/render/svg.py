"""Graphics of a trace's page: alignment curves, heatmap tables, the search tree."""

from collections.abc import Callable, Sequence

from regard.html import Markup, tag
from regard.interpret.attribution import Alignment
from regard.interpret.decode import SearchNode

LETTER_WIDTH = 8.6  # average, at 16 pixels
LINE_HEIGHT = 21.0  # in the tree
MIN_WEIGHT = 0.05  # attention weights below this have no curve


def alignment_picture(alignment: Alignment) -> Markup:
    """Draw source words above target words, joined by curves whose width is the attention weight."""
    source = [n for n, word in enumerate(alignment.source) if not word.special]
    target = [n for n, word in enumerate(alignment.target) if not word.special]
    source_x, source_width = _row_centers([alignment.source[n].text for n in source])
    target_x, target_width = _row_centers([alignment.target[n].text for n in target])
    width = max(source_width, target_width)
    source_x = [x + (width - source_width) / 2 for x in source_x]
    target_x = [x + (width - target_width) / 2 for x in target_x]
    parts = []
    for row, b in zip(target, target_x, strict=True):
        for column, a in zip(source, source_x, strict=True):
            weight = float(alignment.weights[row, column])
            if weight >= MIN_WEIGHT:
                curve = f"M{a:.1f} 30 C{a:.1f} 75 {b:.1f} 65 {b:.1f} 110"
                title = f"{alignment.target[row].text} attends to {alignment.source[column].text}: {weight:.2f}"
                style = f"stroke-width:{1 + 5 * weight:.1f};opacity:{0.15 + 0.85 * weight:.2f}"
                parts.append(tag("path", tag("title", title), d=curve, class_="join", style=style))
    parts += [_word(alignment.source[n].text, x, 20) for n, x in zip(source, source_x, strict=True)]
    parts += [_word(alignment.target[n].text, x, 132) for n, x in zip(target, target_x, strict=True)]
    picture = tag(
        "svg",
        *parts,
        viewBox=f"0 0 {width:.0f} 142",
        class_="picture",
        style=f"width:{width:.0f}px",
        role="img",
        aria_label="alignment",
    )
    return tag("div", picture, class_="wide")


def _row_centers(words: Sequence[str]) -> tuple[list[float], float]:
    """The x coordinates of the centers of words in a row, and the width of the row."""
    centers, x = [], 12.0
    for word in words:
        width = LETTER_WIDTH * max(2, len(word))
        centers.append(x + width / 2)
        x += width + 18
    return centers, x


def _word(content: str, x: float, y: float) -> Markup:
    return tag("text", content, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor="middle")


def heatmap(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    maximum: float,
    color: str,
    *,
    small: bool = False,
) -> Markup:
    """Return a table whose cells are shaded by their numbers; `small` leaves numbers and column labels out."""
    head = tag("tr", tag("td"), *(tag("th", tag("span", label), scope="col") for label in columns))
    body = []
    for label, row in zip(rows, values, strict=True):
        cells = [tag("th", label, scope="row")]
        for value in row:
            fraction = max(0.0, min(1.0, value / maximum))
            text = "" if small or fraction < 0.02 else f"{value:.2f}" if maximum <= 1 else f"{value:.1f}"
            cells.append(tag("td", text, style=f"--shade:{fraction:.3f}", class_="strong" if fraction > 0.6 else None))
        body.append(tag("tr", *cells))
    header = "" if small else tag("thead", head)
    content = tag("table", header, tag("tbody", *body), class_=f"heat {color}{' small' if small else ''}")
    return tag("figure", tag("figcaption", title), tag("div", content, class_="wide"))


def tree_picture(nodes: Sequence[SearchNode], to_tokens: Callable[[Sequence[int]], list[str]]) -> Markup:
    """Draw the search tree with steps from left to right; `nodes` begin with the root."""
    children: dict[int, list[SearchNode]] = {}
    for node in nodes[1:]:
        children.setdefault(node.parent or 0, []).append(node)
    lines = _lines(nodes[0], children)
    tokens = to_tokens([node.token_id or 0 for node in nodes[1:]])
    labels = {0: "•"} | dict(zip((node.number for node in nodes[1:]), tokens, strict=True))
    columns = _column_positions(nodes, labels)
    parts: list[Markup] = []
    for node in sorted(nodes, key=lambda node: node.on_best_path):  # the best path is drawn last, on top
        x, y = columns[node.step + 1], _line_y(lines[node.number])
        if node.parent is not None:
            parent_end = columns[node.step] + _label_width(labels[node.parent])
            parts.append(_edge(node, parent_end, _line_y(lines[node.parent]), x - 5, y))
        summary = f"log p {node.log_probability:.3f}, score {node.score:.3f}, {node.state}"
        score = f" {node.score:.2f}" if node.state in ("finished", "cut") else ""
        content = (
            tag("title", f"{labels[node.number]}: {summary}"),
            labels[node.number],
            tag("tspan", score, class_="score"),
        )
        parts.append(tag("text", *content, x=f"{x:.1f}", y=f"{y + 4:.1f}", class_=_node_class(node)))
    width, height = columns[-1], (max(lines.values()) + 1) * LINE_HEIGHT + 16
    picture = tag(
        "svg",
        *parts,
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        class_="picture tree",
        style=f"width:{width:.0f}px",
        role="img",
        aria_label="search tree",
    )
    present = {_node_class(node) for node in nodes}
    legend = [
        tag("span", name, class_=f"state {name}")
        for name in ("chosen", "finished", "kept", "pruned")
        if name in present
    ]
    return tag("div", tag("p", *legend, class_="states"), tag("div", picture, class_="wide"))


def _lines(root: SearchNode, children: dict[int, list[SearchNode]]) -> dict[int, int]:
    """The line of each node: each leaf has a line of its own, each branch the line of its best child."""
    lines: dict[int, int] = {}
    next_line, stack = 0, [(root, False)]
    while stack:
        node, visited = stack.pop()
        successors = children.get(node.number, [])
        if not successors:
            lines[node.number] = next_line
            next_line += 1
        elif visited:
            lines[node.number] = lines[successors[0].number]
        else:
            stack.append((node, True))
            stack += [(child, False) for child in reversed(successors)]
    return lines


def _line_y(line: int) -> float:
    return line * LINE_HEIGHT + 16


def _column_positions(nodes: Sequence[SearchNode], labels: dict[int, str]) -> list[float]:
    """The x coordinate where each step begins, and the total width."""
    positions, x = [], 10.0
    for step in range(-1, max(node.step for node in nodes) + 1):
        positions.append(x)
        has_score = any(node.step == step and node.state in ("finished", "cut") for node in nodes)
        x += max(_label_width(labels[node.number]) for node in nodes if node.step == step)
        x += (52 if has_score else 0) + 24
    return [*positions, x]


def _edge(node: SearchNode, x: float, y: float, end_x: float, end_y: float) -> Markup:
    middle = (x + end_x) / 2
    curve = f"M{x:.1f} {y:.1f} C{middle:.1f} {y:.1f} {middle:.1f} {end_y:.1f} {end_x:.1f} {end_y:.1f}"
    return tag("path", d=curve, class_=f"edge {_node_class(node)}")


def _label_width(label: str) -> float:
    return 8.0 * len(label) + 6


def _node_class(node: SearchNode) -> str:
    if node.on_best_path:
        return "chosen"
    return {"finished": "finished", "cut": "finished", "pruned": "pruned"}.get(node.state, "kept")
