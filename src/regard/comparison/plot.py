"""One picture of several runs: the validation loss of each against its steps, each line with its name at its end."""

from collections.abc import Sequence
from pathlib import Path

from regard.comparison.measure import Row
from regard.drawing.files import write
from regard.drawing.names import name_ends
from regard.drawing.palette import COLOURS, DASHES
from regard.drawing.style import bare, new_figure, our_style


def draw(rows: Sequence[Row], path: Path) -> bool:
    """Write the picture, in the format that the path's ending names; whether there was anything to draw."""
    drawn = [row for row in rows if row.curve]
    if not drawn:
        return False
    with our_style():
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        figure = new_figure(9, 5.2)
        axes = figure.add_subplot()
        for n, row in enumerate(drawn):  # dashes, once all colours are used
            colour, dashes = COLOURS[n % len(COLOURS)], DASHES[n // len(COLOURS) % len(DASHES)]
            axes.plot(*zip(*row.curve, strict=True), color=colour, linestyle=dashes, linewidth=1.8)
        axes.set_yscale("log")
        for ticks in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            ticks(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("step")
        axes.set_title("validation loss (nats a token, logarithmic)")
        axes.set_xlim(left=0)
        bare(axes)
        colours = [COLOURS[n % len(COLOURS)] for n in range(len(drawn))]
        name_ends(axes, [row.curve[-1] for row in drawn], [row.name for row in drawn], colours)
    write(figure, path)
    return True
