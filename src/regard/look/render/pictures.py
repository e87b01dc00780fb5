"""Pictures for a trace's page: words joined by curves, matrices as shaded tables, the tree of a search."""

from collections.abc import Callable, Sequence

from regard.look.alignment import Alignment
from regard.look.tree import Node, Tree
from regard.training.report.markup import Markup, tag

LETTER = 8.6  # the width of a letter at 16 pixels, on the average
MOST = 300  # nodes of a tree past which what was pruned is left out


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


def tree_picture(tree: Tree, pieces: Callable[[Sequence[int]], list[str]]) -> Markup:
    """Steps from left to right; what was chosen stands out, and what was pruned is faint."""
    shown = tree.nodes if len(tree.nodes) <= MOST else [node for node in tree.nodes if node.state != "pruned"]
    children: dict[int, list[Node]] = {}
    for node in shown[1:]:
        children.setdefault(node.parent or 0, []).append(node)
    heights: dict[int, float] = {}
    count = _place(tree.nodes[0], children, heights, 0)
    labels = dict(
        zip([node.number for node in shown], ["", *pieces([node.token or 0 for node in shown[1:]])], strict=True)
    )
    longest = max((len(label) for label in labels.values()), default=1)
    step, line = max(88.0, 9.0 * longest + 30), 21.0
    parts: list[Markup] = []
    for node in sorted(shown, key=lambda node: node.best):
        x, y = (node.step + 1) * step + 14, heights[node.number] * line + 16
        if node.parent is not None:
            before = (node.step * step + 14 + 8 + 7.6 * len(labels[node.parent]), heights[node.parent] * line + 16)
            middle = (before[0] + x - 6) / 2
            curve = f"M{before[0]:.1f} {before[1]:.1f} C{middle:.1f} {before[1]:.1f} {middle:.1f} {y:.1f} {x - 6:.1f} {y:.1f}"
            parts.append(tag("path", d=curve, class_=f"twig {_class(node)}"))
        about = f"{labels[node.number]}: log p {node.score:.3f}, worth {node.worth:.3f}, {node.state}"
        worth = f" {node.worth:.2f}" if node.state in ("finished", "cut") else ""
        label = tag("tspan", worth, class_="worth")
        text = tag(
            "text",
            tag("title", about),
            labels[node.number] or "•",
            label,
            x=f"{x:.1f}",
            y=f"{y + 4:.1f}",
            class_=_class(node),
        )
        parts.append(text)
    last = max(node.step for node in shown) + 1
    width, height = last * step + 14 + 9 * longest + 70, count * line + 16
    drawn = tag(
        "svg",
        *parts,
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        class_="picture tree",
        style=f"width:{width:.0f}px",
        role="img",
        aria_label="tree of the search",
    )
    legend = tag(
        "p",
        *(tag("span", name, class_=f"state {name}") for name in ("chosen", "finished", "kept", "pruned")),
        class_="states",
    )
    return tag("div", legend, tag("div", drawn, class_="wide"))


def _class(node: Node) -> str:
    return (
        "chosen"
        if node.best
        else {"finished": "finished", "cut": "finished", "pruned": "pruned"}.get(node.state, "kept")
    )


def _place(node: Node, children: dict[int, list[Node]], heights: dict[int, float], free: int) -> int:
    """Give each leaf a line of its own, and each branch the line of its best child; the next free line."""
    stack: list[tuple[Node, bool]] = [(node, False)]
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
