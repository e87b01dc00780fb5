"""Pictures for a trace's page: words joined by curves, matrices as shaded tables, the tree of a search."""

from collections.abc import Callable, Sequence

from regard.html import Markup, tag
from regard.interpret.alignment import Alignment
from regard.interpret.tree import Node

LETTER = 8.6  # the width of a letter at 16 pixels, on the average
LINE = 21.0  # the height of a line in the tree


def alignment_picture(found: Alignment) -> Markup:
    """Source words above, target words below, joined as strongly as one looks at the other."""
    source = [n for n, word in enumerate(found.source) if not word.special]
    target = [n for n, word in enumerate(found.target) if not word.special]
    above, width_above = _laid([found.source[n].text for n in source])
    below, width_below = _laid([found.target[n].text for n in target])
    width = max(width_above, width_below)
    shift = [(width - width_above) / 2, (width - width_below) / 2]
    parts = []
    for row, y in zip(target, below, strict=True):
        for column, x in zip(source, above, strict=True):
            weight = float(found.weights[row, column])
            if weight >= 0.05:
                a, b = x + shift[0], y + shift[1]
                curve = f"M{a:.1f} 30 C{a:.1f} 75 {b:.1f} 65 {b:.1f} 110"
                title = f"{found.target[row].text} looks at {found.source[column].text}: {weight:.2f}"
                style = f"stroke-width:{1 + 5 * weight:.1f};opacity:{0.15 + 0.85 * weight:.2f}"
                parts.append(tag("path", tag("title", title), d=curve, class_="join", style=style))
    for places, xs, y, moved, words in (
        (source, above, 20, shift[0], found.source),
        (target, below, 132, shift[1], found.target),
    ):
        parts += [_text(words[n].text, x + moved, y) for n, x in zip(places, xs, strict=True)]
    box = f"0 0 {width:.0f} 142"
    drawn = tag(
        "svg", *parts, viewBox=box, class_="picture", style=f"width:{width:.0f}px", role="img", aria_label="alignment"
    )
    return tag("div", drawn, class_="wide")


def _laid(words: Sequence[str]) -> tuple[list[float], float]:
    """The middles of words in a row, and how wide the row is."""
    middles, x = [], 12.0
    for word in words:
        width = LETTER * max(2, len(word))
        middles.append(x + width / 2)
        x += width + 18
    return middles, x


def _text(content: str, x: float, y: float, class_: str | None = None, anchor: str = "middle") -> Markup:
    return tag("text", content, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=class_)


def heat(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    most: float,
    colour: str,
    *,
    small: bool = False,
) -> Markup:
    """A matrix as a table whose cells are as dark as their numbers are large."""
    head = tag("tr", tag("td"), *(tag("th", tag("span", label), scope="col") for label in columns))
    body = []
    for label, row in zip(rows, values, strict=True):
        cells = [tag("th", label, scope="row")]
        for value in row:
            share = max(0.0, min(1.0, value / most))
            shown = "" if small or share < 0.02 else f"{value:.2f}" if most <= 1 else f"{value:.1f}"
            cells.append(tag("td", shown, style=f"--share:{share:.3f}", class_="strong" if share > 0.6 else None))
        body.append(tag("tr", *cells))
    header = "" if small else tag("thead", head)
    drawn = tag("table", header, tag("tbody", *body), class_=f"heat {colour}{' small' if small else ''}")
    return tag("figure", tag("figcaption", title), tag("div", drawn, class_="wide"))


def tree_picture(nodes: Sequence[Node], pieces: Callable[[Sequence[int]], list[str]]) -> Markup:
    """Steps from left to right; what was chosen stands out, and what was pruned is faint. The root comes first."""
    children: dict[int, list[Node]] = {}
    for node in nodes[1:]:
        children.setdefault(node.parent or 0, []).append(node)
    heights: dict[int, float] = {}
    count = _place(nodes[0], children, heights)
    labels = {0: "•"} | dict(
        zip((node.number for node in nodes[1:]), pieces([node.token or 0 for node in nodes[1:]]), strict=True)
    )
    columns = _columns(nodes, labels)
    parts: list[Markup] = []
    for node in sorted(nodes, key=lambda node: node.best):
        x, y = columns[node.step + 1], heights[node.number] * LINE + 16
        if node.parent is not None:
            parts.append(_twig(node, columns[node.step] + _width(labels[node.parent]), heights[node.parent], x, y))
        about = f"{labels[node.number]}: log p {node.score:.3f}, worth {node.worth:.3f}, {node.state}"
        worth = f" {node.worth:.2f}" if node.state in ("finished", "cut") else ""
        inside = (tag("title", about), labels[node.number], tag("tspan", worth, class_="worth"))
        parts.append(tag("text", *inside, x=f"{x:.1f}", y=f"{y + 4:.1f}", class_=_class(node)))
    width, height = columns[-1], count * LINE + 16
    drawn = tag(
        "svg",
        *parts,
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        class_="picture tree",
        style=f"width:{width:.0f}px",
        role="img",
        aria_label="tree of the search",
    )
    states = ["chosen", "finished", "kept", "pruned"]
    there = {_class(node) for node in nodes}
    legend = [tag("span", name, class_=f"state {name}") for name in states if name in there]
    return tag("div", tag("p", *legend, class_="states"), tag("div", drawn, class_="wide"))


def _columns(nodes: Sequence[Node], labels: dict[int, str]) -> list[float]:
    """Where each step begins, and where all ends."""
    found, x = [], 10.0
    for step in range(-1, max(node.step for node in nodes) + 1):
        found.append(x)
        ended = any(node.step == step and node.state in ("finished", "cut") for node in nodes)
        x += max(_width(labels[node.number]) for node in nodes if node.step == step) + (52 if ended else 0) + 24
    return [*found, x]


def _twig(node: Node, x: float, height: float, to_x: float, to_y: float) -> Markup:
    y, to_x = height * LINE + 16, to_x - 5
    middle = (x + to_x) / 2
    curve = f"M{x:.1f} {y:.1f} C{middle:.1f} {y:.1f} {middle:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
    return tag("path", d=curve, class_=f"twig {_class(node)}")


def _width(label: str) -> float:
    return 8.0 * len(label) + 6


def _class(node: Node) -> str:
    return (
        "chosen"
        if node.best
        else {"finished": "finished", "cut": "finished", "pruned": "pruned"}.get(node.state, "kept")
    )


def _place(node: Node, children: dict[int, list[Node]], heights: dict[int, float]) -> int:
    """Give each leaf a line of its own, and each branch the line of its best child; how many lines there are."""
    free, stack = 0, [(node, False)]
    while stack:
        one, done = stack.pop()
        several = children.get(one.number, [])
        if not several:
            heights[one.number] = free
            free += 1
        elif done:
            heights[one.number] = heights[several[0].number]
        else:
            stack.append((one, True))
            stack += [(child, False) for child in reversed(several)]
    return free
