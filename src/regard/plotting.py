"""Shared matplotlib code: colors, style, labels at the ends of lines, and deterministic figure files.

matplotlib is imported inside the functions, so that importing this module is cheap. The same figure always gives the
same bytes. SVG files follow the reader's light or dark color scheme.
"""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import ConfigError
from regard.files import explain_write_errors, write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, FAINT, PAPER = "#1b1c1e", "#5c6066", "#e3e4e1", "#ffffff"  # text, secondary text, grid lines, background
BLUE, ORANGE, GREEN, PURPLE = "#2a6fc9", "#d9652b", "#2e7d4f", "#8a4fbf"
COLORS = (BLUE, ORANGE, GREEN, PURPLE, "#b8860b", "#c2417c", "#4a8a99", "#6b6f76")
DARK_COLORS = {  # replacement of each color in dark mode
    PAPER: "#17181a",
    INK: "#e8e8e5",
    SOFT: "#a9adb2",
    FAINT: "#313437",
    BLUE: "#6aa5f0",
    ORANGE: "#ee8a55",
    GREEN: "#6cc490",
    PURPLE: "#b792e0",
    "#b8860b": "#d9b04a",
    "#c2417c": "#e983b1",
    "#4a8a99": "#7fbccb",
    "#6b6f76": "#9ba0a8",
}
DASHES = (  # one per color, so that lines can be distinguished in grayscale
    "-",
    "--",
    ":",
    "-.",
    (0, (9, 2)),
    (0, (4, 1.5, 1, 1.5, 1, 1.5)),
    (0, (1, 3.5)),
    (0, (9, 2, 3, 2)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

RC_PARAMS: Any = {
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
    "svg.hashsalt": "regard",  # deterministic element ids
    "svg.fonttype": "none",
    "text.parse_math": False,  # a token may be a dollar sign
}
MAX_INCHES = 40
FIGURE_FORMATS = (".png", ".svg", ".pdf")
DPI = 160
TEXT_SHADE = 0.5  # opacity of the strongest color behind text
LABEL_GAP = 0.045  # vertical distance between two labels, as a fraction of the axes' height
LETTERS_PER_INCH = 7  # of labels in one row, relative to the axes' width


@contextmanager
def plot_style() -> Iterator[None]:
    """Apply regard's matplotlib style inside the context; the caller's settings are restored afterwards."""
    import matplotlib as mpl

    with mpl.rc_context(RC_PARAMS):
        yield


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of this size in inches, limited to `MAX_INCHES`, without a window."""
    from matplotlib.figure import Figure

    return Figure(figsize=(min(width, MAX_INCHES), min(height, MAX_INCHES)), layout="constrained")


def minimal_axes(ax: "Axes") -> None:
    """Remove the frame and ticks, and add light horizontal grid lines."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(length=0, which="both")
    ax.set_axisbelow(True)
    ax.grid(axis="y", color=FAINT, linewidth=0.8)


def value_grid(
    ax: "Axes",
    shades: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    texts: Sequence[Sequence[str]] = (),
    color: str = BLUE,
    font_size: float = 8,
) -> None:
    """Draw a grid of cells, darker where the shade (0 to 1) is larger, with a text in each.

    Cells are shapes, not an image, so that they follow dark mode. Those with texts are so pale that the color of text
    has a contrast of 4.5 to all of them in both modes.
    """
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgb

    strongest = TEXT_SHADE if texts else 1.0
    corners = [[(j, i), (j + 1, i), (j + 1, i + 1), (j, i + 1)] for i in range(len(rows)) for j in range(len(columns))]
    fills = [(*to_rgb(color), strongest * min(1.0, max(0.0, shade))) for row in shades for shade in row]
    ax.add_collection(PolyCollection(corners, facecolors=fills, edgecolors=FAINT, linewidths=0.6))
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            if text:
                ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=font_size, color=INK)
    ax.set_xlim(0, len(columns))
    ax.set_ylim(len(rows), 0)
    ax.set_xticks([n + 0.5 for n in range(len(columns))], columns)
    ax.set_yticks([n + 0.5 for n in range(len(rows))], rows)
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(title)


def heat_map(ax: "Axes", values: Sequence[Sequence[float]], *, title: str, xlabel: str, ylabel: str) -> None:
    """Draw signed values with a color bar: orange below zero, white at zero, blue above."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.ticker import MaxNLocator

    colors = LinearSegmentedColormap.from_list("signed", [ORANGE, "#ffffff", BLUE])
    limit = max(abs(value) for row in values for value in row) or 1.0
    image = ax.imshow(values, cmap=colors, vmin=-limit, vmax=limit, interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, fraction=0.045, pad=0.02)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.set_title(title)


def check_figure_path(path: Path, option: str) -> None:
    """Raise ConfigError if the file extension is not a supported figure format."""
    if path.suffix.lower() not in FIGURE_FORMATS:
        raise ConfigError(f"{option} {path}: should end in {', '.join(FIGURE_FORMATS[:-1])} or {FIGURE_FORMATS[-1]}.")


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure atomically, in the format of the path's extension."""
    content = figure_bytes(figure, path.suffix.lower()[1:])
    with explain_write_errors(path):
        write_bytes(path, content)


def figure_bytes(figure: "Figure", file_format: str) -> bytes:
    """Return a figure as `png`, `svg` or `pdf`; without dates, so that equal figures give equal bytes."""
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(file_format, {})
    background = "none" if file_format == "svg" else PAPER  # an SVG has the background of the page that embeds it
    content = io.BytesIO()
    with plot_style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # characters that the font lacks are drawn as boxes
        figure.savefig(
            content, format=file_format, dpi=DPI, bbox_inches="tight", facecolor=background, metadata=metadata
        )
    return _with_dark_mode(content.getvalue().decode()).encode() if file_format == "svg" else content.getvalue()


def _with_dark_mode(svg: str) -> str:
    """Replace the palette by CSS variables that follow `prefers-color-scheme`."""
    names = {color: f"--r{n}" for n, color in enumerate(DARK_COLORS)}
    light = "".join(f"{name}:{color};" for color, name in names.items())
    dark = "".join(f"{names[color]}:{replacement};" for color, replacement in DARK_COLORS.items())
    style = f"svg{{{light}}}@media(prefers-color-scheme:dark){{svg{{{dark}}}}}"
    palette = re.compile("|".join(names), re.IGNORECASE)
    recolored = palette.sub(lambda match: f"var({names[match[0].lower()]})", svg)
    return re.sub(r"(<svg\b[^>]*>)", lambda match: f"{match[1]}<style>{style}</style>", recolored, count=1)


def label_line_ends(
    ax: "Axes",
    ends: Sequence[tuple[float, float]],
    labels: Sequence[str],
    colors: Sequence[str],
    gap: float = LABEL_GAP,
) -> None:
    """Write the label of each line to the right of the axes, at the height where the line ends.

    This replaces a legend. Labels of lines that end at the same height share a row, each in its own color.
    """
    ax.autoscale_view()  # matplotlib would do it only when drawing
    to_axes = ax.transAxes.inverted()
    heights = [float(to_axes.transform(ax.transData.transform(end))[1]) for end in ends]
    max_letters = int(LETTERS_PER_INCH * ax.bbox.width / ax.figure.dpi)
    rows = group_labels(heights, labels, max_letters, gap)
    for (_, row), height in zip(rows, spread_labels([height for height, _ in rows], gap), strict=True):
        _draw_label_row(ax, height, [labels[n] for n in row], [colors[n] for n in row])


def group_labels(
    heights: Sequence[float], labels: Sequence[str], max_letters: int, gap: float = LABEL_GAP
) -> list[tuple[float, list[int]]]:
    """Group labels of (almost) equal height into rows of at most `max_letters` letters, the lowest row first.

    >>> group_labels([0.101, 0.9, 0.1], ["learned", "none", "rotary"], max_letters=20)
    [(0.1, [0, 2]), (0.9, [1])]
    """
    groups: list[list[int]] = []
    for n in sorted(range(len(heights)), key=lambda n: heights[n]):
        if groups and heights[n] - heights[groups[-1][0]] < gap / 4:
            groups[-1].append(n)
        else:
            groups.append([n])
    return [(heights[group[0]], row) for group in groups for row in reversed(_wrap(sorted(group), labels, max_letters))]


def _wrap(members: Sequence[int], labels: Sequence[str], max_letters: int) -> list[list[int]]:
    rows: list[list[int]] = []
    remaining = 0
    for n in members:
        remaining -= len(labels[n])
        if rows and remaining >= 0:
            rows[-1].append(n)
        else:
            rows.append([n])
            remaining = max_letters - len(labels[n])
    return rows


def spread_labels(heights: Sequence[float], gap: float = LABEL_GAP) -> list[float]:
    """Move heights as little as possible so that neighboring labels are at least `gap` apart, in the same order.

    They stay between the bottom (0) and the top (1) of the axes.

    >>> spread_labels([0.5, 0.5, 0.9], gap=0.1)
    [0.45, 0.55, 0.9]
    >>> spread_labels([0.0, 0.0, 0.0], gap=0.1)
    [0.0, 0.1, 0.2]
    """
    order = sorted(range(len(heights)), key=lambda n: heights[n])
    groups: list[tuple[float, list[int]]] = []  # touching labels: their mean height and their indices
    for n in order:
        groups.append((heights[n], [n]))
        while len(groups) > 1 and _top(groups[-2], gap) + gap > _bottom(groups[-1], gap) + 1e-9:
            (_, low), (_, high) = groups[-2:]
            merged = low + high
            groups[-2:] = [(sum(heights[m] for m in merged) / len(merged), merged)]
    moved = [0.0] * len(heights)
    for group in groups:
        for place, n in enumerate(group[1]):
            moved[n] = round(_bottom(group, gap) + place * gap, 6)
    return moved


def _bottom(group: tuple[float, list[int]], gap: float) -> float:
    middle, members = group
    height = gap * (len(members) - 1)
    return max(0.0, min(middle - height / 2, 1 - height))


def _top(group: tuple[float, list[int]], gap: float) -> float:
    return _bottom(group, gap) + gap * (len(group[1]) - 1)


def _draw_label_row(ax: "Axes", height: float, labels: Sequence[str], colors: Sequence[str]) -> None:
    previous = ax.annotate(labels[0], (1.01, height), xycoords="axes fraction", va="center", color=colors[0])
    for label, color in zip(labels[1:], colors[1:], strict=True):
        previous.set_text(f"{previous.get_text()},")
        previous = ax.annotate(
            label, (1, 0), xycoords=previous, xytext=(3, 0), textcoords="offset points", va="bottom", color=color
        )
