"""One picture of several runs: the validation loss of each against its steps, each line with its name at its end."""

from collections.abc import Sequence
from pathlib import Path

from regard.comparison.measure import Row
from regard.errors import ConfigError

COLOURS = ("#2a6fc9", "#d9652b", "#2e7d4f", "#8a4fbf", "#b8860b", "#c2417c", "#4a8a99", "#6b6f76")
STYLES = ("-", "--", ":")  # once all colours are used
GAP = 0.045  # between two names, as a share of the height


def check_name(path: Path) -> None:
    """Complain about a picture in a format that there is not, before anything long begins."""
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise ConfigError(f"{path}: cannot be drawn; let its name end in .svg, .png or .pdf.")


def draw(rows: Sequence[Row], path: Path) -> bool:
    """Write the picture, in the format that the path's ending names; whether there was anything to draw."""
    drawn = [row for row in rows if row.curve]
    if not drawn:
        return False
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    with mpl.rc_context({"svg.hashsalt": "regard", "font.size": 10, "svg.fonttype": "none"}):
        figure, axes = plt.subplots(figsize=(9, 5.2), layout="constrained")
        for n, row in enumerate(drawn):
            colour, style = COLOURS[n % len(COLOURS)], STYLES[n // len(COLOURS) % len(STYLES)]
            axes.plot(*zip(*row.curve, strict=True), color=colour, linestyle=style, linewidth=1.8)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True))
        axes.set_xlabel("step")
        axes.set_title("validation loss (nats a token, logarithmic)", loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlim(left=0)
        axes.grid(axis="y", which="both", color="#e3e4e1", linewidth=0.8)
        ends = [axes.transAxes.inverted().transform(axes.transData.transform(row.curve[-1]))[1] for row in drawn]
        for n, (row, height) in enumerate(zip(drawn, apart(ends), strict=True)):
            axes.annotate(
                row.name, (1.01, height), xycoords="axes fraction", va="center", color=COLOURS[n % len(COLOURS)]
            )
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=160)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another place.") from None
        finally:
            plt.close(figure)
    return True


def apart(heights: Sequence[float], gap: float = GAP) -> list[float]:
    """Heights moved as little as need be so that no two names lie on each other, in the order that they have.

    >>> apart([0.5, 0.5, 0.9], gap=0.1)
    [0.45, 0.55, 0.9]
    """
    order = sorted(range(len(heights)), key=lambda n: heights[n])
    groups: list[tuple[float, list[int]]] = []  # the middle of those that touch, and who they are
    for n in order:
        groups.append((heights[n], [n]))
        while len(groups) > 1 and _top(groups[-2], gap) + gap > _bottom(groups[-1], gap) + 1e-9:
            (_, low), (_, high) = groups[-2:]
            both = low + high
            groups[-2:] = [(sum(heights[m] for m in both) / len(both), both)]
    moved = [0.0] * len(heights)
    for group in groups:
        for place, n in enumerate(group[1]):
            moved[n] = round(_bottom(group, gap) + place * gap, 6)
    return moved


def _bottom(group: tuple[float, list[int]], gap: float) -> float:
    return group[0] - gap * (len(group[1]) - 1) / 2


def _top(group: tuple[float, list[int]], gap: float) -> float:
    return group[0] + gap * (len(group[1]) - 1) / 2
