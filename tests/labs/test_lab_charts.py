"""Ticks and line labels of charts are readable."""

from typing import TYPE_CHECKING

import pytest

from regard.labs.charts import AxisScale, LineSeries, line_chart
from regard.plotting import COLORS, DASHES, figure_bytes, group_labels, new_figure, plot_style, spread_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_chart(
    xs: list[int], ys: list[float], *, x: AxisScale = "linear", y: AxisScale = "linear", width: float = 6
) -> "Axes":
    with plot_style():
        figure = new_figure(width, 3)
        ax = figure.subplots()
        line_chart(ax, {"line": LineSeries(xs, ys)}, title="y", xlabel="x", xscale=x, yscale=y)
        figure_bytes(figure, "svg")
    return ax


def non_empty(texts: list[str]) -> list[str]:
    return [text for text in texts if text]


def test_log_axis_has_ticks_at_the_measured_points() -> None:
    ax = draw_chart([3, 6, 12, 48], [1, 2, 3, 4], x="log")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["3", "6", "12", "48"]


def test_overlapping_ticks_are_thinned_evenly_and_the_last_is_kept() -> None:
    ax = draw_chart([2**n for n in range(1, 12)], [1.0] * 11, x="log", width=3.5)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["2", "8", "32", "128", "512", "2,048"]


def test_axis_of_integers_has_integer_ticks() -> None:
    ax = draw_chart([0, 1, 2], [1, 2, 3])
    assert all(tick == int(tick) for tick in ax.get_xticks())


@pytest.mark.parametrize(("last", "superscript"), [(1e5, False), (1e9, True)])
def test_axis_labels_have_one_notation(last: float, superscript: bool) -> None:
    ax = draw_chart([1, 2], [10.0, last], y="log")
    labels = non_empty([label.get_text() for label in ax.get_yticklabels()])
    assert len(labels) > 2
    assert all(("⁰" <= text[-1] <= "⁹" or text[-1] in "¹²³") == superscript for text in labels)


def test_every_color_has_its_own_dash() -> None:
    assert len(set(DASHES)) == len(DASHES) == len(COLORS)


def test_labels_of_many_lines_that_end_at_the_bottom_stay_inside_the_axes() -> None:
    heights = spread_labels([0.0] * 5 + [1.0] * 3, gap=0.1)
    assert heights == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.8, 0.9, 1.0])


def test_lines_with_the_same_end_share_a_row_if_there_is_space() -> None:
    names = ["no positions", "sinusoidal", "learned", "relative", "rotary"]
    assert group_labels([0.9, 0.0, 0.0, 0.0, 0.0], names, max_letters=30) == [(0.0, [4]), (0.0, [1, 2, 3]), (0.9, [0])]
