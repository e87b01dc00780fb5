"""A matrix drawn cell by cell: the darker, the more; cells that matter have a frame."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from regard.drawing.palette import BLUE, FAINT, INK, ORANGE, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def cells(
    ax: "Axes",
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    framed: Collection[tuple[int, int]] = (),
    said: Sequence[Sequence[str]] = (),
) -> None:
    """Draw values from 0 to 1, rows downwards; `framed` are (row, column), `said` is written into the cells."""
    from matplotlib.patches import Rectangle

    for i, row in enumerate(values):
        for j, value in enumerate(row):
            shade = min(1.0, max(0.0, value))  # a shape by itself, not a pixel: it turns with the page to the night
            ax.add_patch(Rectangle((j, i), 1, 1, facecolor=BLUE, alpha=shade, linewidth=0))
            ax.add_patch(Rectangle((j, i), 1, 1, fill=False, edgecolor=FAINT, linewidth=0.6))
    for i, j in framed:
        ax.add_patch(Rectangle((j + 0.06, i + 0.06), 0.88, 0.88, fill=False, edgecolor=ORANGE, linewidth=1.6))
    for i, texts in enumerate(said):
        for j, text in enumerate(texts):
            ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", color=PAPER if values[i][j] > 0.7 else INK)
    ax.set_xlim(0, len(columns))
    ax.set_ylim(len(rows), 0)
    ax.set_aspect("equal")
    ax.set_xticks([n + 0.5 for n in range(len(columns))], columns, rotation=60, ha="right", rotation_mode="anchor")
    ax.set_yticks([n + 0.5 for n in range(len(rows))], rows)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(title)
