"""A matrix of numbers of both signs as coloured squares: light orange below zero, dark blue above, white at zero."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Of the palette's hues, but one far darker than the other, so that they can be told apart in grey; and not its very
# colours, which a browser in the dark would exchange: a matrix is the same at night.
BELOW, ZERO, ABOVE = "#f0a57c", "#fefefe", "#123f80"


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
