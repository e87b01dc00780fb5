"""How matplotlib is to draw, so that all pictures look like one hand's."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from regard.drawing.palette import FAINT, INK, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE: Any = {  # of what matplotlib has settings for
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": FAINT,
    "axes.facecolor": "none",
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "svg.hashsalt": "regard",  # the same picture is the same file
    "svg.fonttype": "none",
    "text.parse_math": False,  # a token may be a dollar sign
}
LARGEST = 40  # inches


@contextmanager
def our_style() -> Iterator[None]:
    """While it lasts, pictures look like ours; those of whoever asks look as before."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        yield


def new_figure(width: float, height: float) -> "Figure":
    """An empty picture of so many inches, in no window."""
    from matplotlib.figure import Figure

    return Figure(figsize=(min(width, LARGEST), min(height, LARGEST)), layout="constrained")


def bare(ax: "Axes") -> None:
    """Leave only what is read: no box around, faint lines at the height of the numbers."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(length=0, which="both")
    ax.set_axisbelow(True)
    ax.grid(axis="y", color=FAINT, linewidth=0.8)
