"""What charts have at their axes and at the ends of their lines can be read."""

from typing import TYPE_CHECKING

import pytest

from regard.labs.charts.lines import AxisScale, LineSeries, line_chart
from regard.plotting import COLORS, DASHES, figure_bytes, group_labels, new_figure, plot_style, spread_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def charted(
    xs: list[int], ys: list[float], *, x: AxisScale = "linear", y: AxisScale = "linear", width: float = 6
) -> "Axes":
    with plot_style():
        figure = new_figure(width, 3)
        ax = figure.subplots()
        line_chart(ax, {"one": LineSeries(xs, ys)}, title="height", xlabel="place", xscale=x, yscale=y)
        figure_bytes(figure, "svg")
    return ax


def numbers(texts: list[str]) -> list[str]:
    return [text for text in texts if text]


def test_an_axis_by_powers_has_numbers_where_something_was_measured() -> None:
    ax = charted([3, 6, 12, 48], [1, 2, 3, 4], x="log")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["3", "6", "12", "48"]


def test_numbers_that_would_crowd_are_thinned_evenly_and_the_last_is_kept() -> None:
    ax = charted([2**n for n in range(1, 12)], [1.0] * 11, x="log", width=3.5)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["2", "8", "32", "128", "512", "2,048"]


def test_there_is_no_half_layer() -> None:
    ax = charted([0, 1, 2], [1, 2, 3])
    assert all(place == int(place) for place in ax.get_xticks())


@pytest.mark.parametrize(("last", "raised"), [(1e5, False), (1e9, True)])
def test_an_axis_has_one_notation(last: float, raised: bool) -> None:
    ax = charted([1, 2], [10.0, last], y="log")
    found = numbers([label.get_text() for label in ax.get_yticklabels()])
    assert len(found) > 2
    assert all(("⁰" <= text[-1] <= "⁹" or text[-1] in "¹²³") == raised for text in found)


def test_every_colour_has_a_dash_of_its_own() -> None:
    assert len(set(DASHES)) == len(DASHES) == len(COLORS)


def test_names_stay_beside_the_axes_however_many_lines_end_at_the_bottom() -> None:
    found = spread_labels([0.0] * 5 + [1.0] * 3, gap=0.1)
    assert found == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.8, 0.9, 1.0])


def test_lines_that_end_together_share_a_row_while_there_is_room() -> None:
    names = ["no positions", "sinusoidal", "learned", "relative", "rotary"]
    assert group_labels([0.9, 0.0, 0.0, 0.0, 0.0], names, max_letters=30) == [(0.0, [4]), (0.0, [1, 2, 3]), (0.9, [0])]
