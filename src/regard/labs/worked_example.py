"""Self-attention on numbers small enough to check by hand, and the look-ahead mask.

Three inputs of width 4 and three weight matrices with entries from 0 to 3: a classroom example. Everything shown passes
through the taps of the kernel that networks run; nothing is computed for display.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from regard.labs.charts.grids import matrix as draw_matrix
from regard.labs.lab import LabContext, LabFigure, LabResult
from regard.nn import FullAttention, make_layout, open_taps
from regard.plotting import new_figure, plot_style

METHOD = """
Three inputs of width 4 meet three weight matrices with entries from 0 to 3. Query, key, value, score, scaled score,
weight and output are read from the taps of the attention kernel, and written as one would on a board. Then the
look-ahead mask on the scaled scores of four words.
"""
LIMITATIONS = """
Three tokens and one head show the arithmetic, and nothing of what a trained network does with it.
"""

X = [[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]]
W_QUERY = [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]]
W_KEY = [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]]
W_VALUE = [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]]

WORDS = ["<start>", "I", "am", "fine"]
SCALED_SCORES = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.3, 0.6, 0.1], [0.1, 0.3, 0.3, 0.3]]


def self_attention(scaled: bool = True) -> dict[str, Tensor]:
    """Every matrix of the example by name, with ÷√d_k or without.

    >>> self_attention(scaled=False)["output"]
    tensor([[1.9366, 6.6831, 1.5951],
            [2.0000, 7.9640, 0.0540],
            [1.9997, 7.7599, 0.3584]])
    """
    x = torch.tensor(X, dtype=torch.float32)
    weights = {name: torch.tensor(w, dtype=torch.float32) for name, w in _WEIGHTS.items()}
    q, k, v = (x @ weights[name] for name in ("W_query", "W_key", "W_value"))
    kernel = FullAttention(scale=1 / math.sqrt(k.size(1)) if scaled else 1.0)
    with open_taps(kernel) as seen:
        output = kernel(q[None, None], k[None, None], v[None, None], make_layout(torch.zeros(1, 3)))[0, 0]
    return {"X": x, **weights, "Q": q, "K": k, "V": v, **{name: t[0, 0] for name, t in seen.items()}, "output": output}


def look_ahead() -> dict[str, Tensor]:
    """The look-ahead mask over four words: scaled scores, mask, masked scores and weights.

    >>> look_ahead()["weights"]
    tensor([[1.0000, 0.0000, 0.0000, 0.0000],
            [0.3775, 0.6225, 0.0000, 0.0000],
            [0.2584, 0.3156, 0.4260, 0.0000],
            [0.2144, 0.2619, 0.2619, 0.2619]])
    """
    scores = torch.tensor(SCALED_SCORES)
    n = len(scores)
    kernel = FullAttention(scale=1.0)
    with open_taps(kernel) as seen:  # with the identity for keys and values, q kᵀ is q and the output is the weights
        eye = torch.eye(n)[None, None]
        kernel(scores[None, None], eye, eye, make_layout(torch.zeros(1, n), causal=True))
    masked = seen["masked"][0, 0]
    mask = torch.zeros(n, n).masked_fill(masked == -math.inf, -math.inf)
    return {"scores": scores, "mask": mask, "masked": masked, "weights": seen["weights"][0, 0]}


def run(context: LabContext) -> LabResult:
    """The whole example on the board."""
    names = ("Q", "K", "V", "scores", "scaled", "weights", "output")
    scaled, plain, ahead = self_attention(), self_attention(scaled=False), look_ahead()
    largest = [one["weights"].max(-1).values for one in (scaled, plain)]
    with_it, without = (", ".join(f"{value:.2f}" for value in one.tolist()) for one in largest)
    unseen = float(ahead["weights"].triu(1).max())
    return LabResult(
        holds=bool((largest[1] >= largest[0]).all()) and unseen == 0,
        summary="Every number on the board comes from the kernel that networks run, and can be checked with a pencil. "
        f"The largest weights of the rows are {with_it} with the division by √d_k and {without} without it; under the "
        f"look-ahead mask what is ahead weighs {number(unseen)}.",
        numbers={
            "self_attention": {name: scaled[name].tolist() for name in names},
            "unscaled_weights": plain["weights"].tolist(),
            "unscaled_output": plain["output"].tolist(),
            "look_ahead_weights": ahead["weights"].tolist(),
        },
        figures=[_draw({"softmax(Q Kᵀ / √d_k)": scaled, "softmax(Q Kᵀ)": plain, "with the look-ahead mask": ahead})],
        text=board(),
    )


def board() -> str:
    """The whole example as text."""
    return "\n".join([*_self_attention_text(), "", *_look_ahead_text()])


_WEIGHTS = {"W_query": W_QUERY, "W_key": W_KEY, "W_value": W_VALUE}


def _draw(examples: Mapping[str, Mapping[str, Tensor]]) -> LabFigure:
    said = []
    with plot_style():
        figure = new_figure(9.5, 3.4)
        for ax, (title, example) in zip(figure.subplots(1, len(examples)), examples.items(), strict=True):
            weights = example["weights"].tolist()
            names = WORDS if len(weights) == len(WORDS) else [f"token {n}" for n in range(1, len(weights) + 1)]
            texts = [[number(value, decimals=2) for value in row] for row in weights]
            draw_matrix(ax, weights, names, names, title=title, texts=texts)
            said.append(f"{title}: {'; '.join(' '.join(row) for row in texts)}.")
    return LabFigure(
        "weights",
        "The weights, the darker the larger, a row for each token that looks: of three tokens with the division and "
        "without it, and of four words that see only themselves and what is before them.",
        figure,
        f"Three matrices of weights, row by row. {' '.join(said)}",
    )


def _self_attention_text() -> list[str]:
    plain, scaled = self_attention(scaled=False), self_attention()
    lines = [
        "SELF-ATTENTION BY HAND        softmax(Q Kᵀ / √d_k) V",
        "",
        "The input: three tokens, four numbers each.",
        "",
    ]
    lines += _indent(beside("X =", matrix(plain["X"])))
    for number_, (name, what) in enumerate({"Q": "query", "K": "key", "V": "value"}.items(), start=1):
        weight = f"W_{what}"
        lines += ["", f"{number_}. Every token gets a {what}:  {name} = X · {weight}", ""]
        lines += _indent(beside(matrix(plain["X"]), "·", matrix(plain[weight]), "=", matrix(plain[name])))
        lines += ["", f"   for one: {_dot(plain['X'][2], plain[weight][:, 2], f'{name}₃₃')}"]
    lines += ["", "4. Every query meets every key:  scores = Q · Kᵀ", ""]
    lines += _indent(beside(matrix(plain["Q"]), "·", matrix(plain["K"].T), "=", matrix(plain["scores"])))
    lines += ["", f"   for one: {_dot(plain['Q'][1], plain['K'][1], 'score₂₂')}"]
    lines += ["", "5. Scores grow with the width of the keys, so divide by √d_k = √3 = 1.7321", ""]
    lines += _indent(beside("scaled =", matrix(scaled["scaled"])))
    lines += ["", "6. Softmax along each row: weights that sum to one", ""]
    lines += _indent(beside("weights =", matrix(scaled["weights"])))
    lines += ["", "7. Every token takes its weighted sum of the values:  output = weights · V", ""]
    lines += _indent(beside(matrix(scaled["weights"]), "·", matrix(scaled["V"]), "=", matrix(scaled["output"])))
    lines += ["", "   Without step 5 the softmax is sharper, and the output is nearer to single values:", ""]
    lines += _indent(beside("softmax(Q Kᵀ) =", matrix(plain["weights"]), " output =", matrix(plain["output"])))
    return lines


def _look_ahead_text() -> list[str]:
    table = look_ahead()
    lines = ["THE LOOK-AHEAD MASK        a word sees itself and what is before it", ""]
    lines += ["1. Scaled scores of four words, and the mask to add", ""]
    scores = matrix(table["scores"], rows=WORDS, columns=WORDS, decimals=1)
    lines += _indent(beside(scores, "+", ["", *matrix(table["mask"])], "=", ["", *matrix(table["masked"], decimals=1)]))
    lines += ["", "2. Softmax along each row: e^−∞ = 0, so what is ahead weighs nothing", ""]
    lines += _indent(matrix(table["weights"], rows=WORDS, columns=WORDS))
    lines += [
        "",
        "   Every row still sums to one. The mask comes before softmax: a score of 0 would still weigh e^0 = 1.",
    ]
    return lines


def _indent(lines: list[str]) -> list[str]:
    return [f"   {line}" for line in lines]


def _dot(a: Tensor, b: Tensor, name: str) -> str:
    """One entry of a product, written out."""
    terms = " + ".join(f"{number(x)}·{number(y)}" for x, y in zip(a.tolist(), b.tolist(), strict=True))
    return f"{name} = {terms} = {number(float(a @ b))}"


def number(value: float, decimals: int = 4) -> str:
    """Whole numbers bare, others with all their decimals, so that a column lines up.

    >>> number(2.0), number(0.5), number(-1.0), number(float("-inf"))
    ('2', '0.5000', '−1', '−∞')
    """
    if value == -math.inf:
        return "−∞"
    text = str(round(value)) if value == round(value) else f"{value:.{decimals}f}"
    return text.replace("-", "−")


def matrix(values: Tensor, rows: Sequence[str] = (), columns: Sequence[str] = (), decimals: int = 4) -> list[str]:
    """The lines of a matrix (R, C) in brackets, optionally with names for rows and columns.

    >>> import torch
    >>> print(*matrix(torch.tensor([[1.0, 0.5], [12.0, 0.0]])), sep="\\n")
    ⎡  1  0.5000 ⎤
    ⎣ 12       0 ⎦
    """
    matrix = [[number(value, decimals) for value in row] for row in values.tolist()]
    heads = list(columns) or [""] * values.size(1)
    widths = [max(len(heads[j]), *(len(row[j]) for row in matrix)) for j in range(values.size(1))]
    names = list(rows) or [""] * len(matrix)
    margin = max(len(name) for name in names)
    gap = " " if margin else ""
    lines = []
    if columns:
        lines.append(" " * (margin + len(gap) + 2) + "  ".join(h.rjust(w) for h, w in zip(heads, widths, strict=True)))
    for i, row in enumerate(matrix):
        left, right = _bracket(i, len(matrix))
        inside = "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"{names[i].rjust(margin)}{gap}{left} {inside} {right}")
    return lines


def beside(*parts: list[str] | str) -> list[str]:
    """Matrices and signs next to each other, middles aligned.

    >>> print(*beside(["[1]", "[2]", "[3]"], "·", ["[4]"]), sep="\\n")
    [1]
    [2] · [4]
    [3]
    """
    columns = [[part] if isinstance(part, str) else part for part in parts]
    height = max(len(column) for column in columns)
    padded = []
    for column in columns:
        width = max(len(line) for line in column)
        above = (height - len(column)) // 2
        below = height - len(column) - above
        padded.append([" " * width] * above + [line.ljust(width) for line in column] + [" " * width] * below)
    return [" ".join(line).rstrip() for line in zip(*padded, strict=True)]


def _bracket(row: int, height: int) -> tuple[str, str]:
    if height == 1:
        return "[", "]"
    if row == 0:
        return "⎡", "⎤"
    return ("⎣", "⎦") if row == height - 1 else ("⎢", "⎥")
