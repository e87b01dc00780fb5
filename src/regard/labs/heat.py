"""A matrix of numbers of both signs as coloured squares: orange below zero, blue above, and white at zero."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# nearly the palette's colours, which a browser in the dark would exchange: a matrix is the same at night
BELOW, ZERO, ABOVE = "#d9652c", "#fefefe", "#2a6fca"


def heat(ax: "Axes", values: Tensor, rows: Sequence[str], *, title: str, across: str = "", most: float = 1.0) -> None:
    """Draw a matrix (R, C) with the names of its rows; numbers beyond `most` have the colour of `most`."""
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("signed", [BELOW, ZERO, ABOVE])
    # squares rather than an image: a picture within a picture would be a file of its own to a browser
    ax.pcolormesh(values.tolist(), cmap=shades, vmin=-most, vmax=most, edgecolors="white", linewidth=0.5)
    ax.set_yticks([row + 0.5 for row in range(len(rows))], rows)
    ax.set_xticks([])
    ax.invert_yaxis()
    ax.set_title(title)
    ax.set_xlabel(across)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
