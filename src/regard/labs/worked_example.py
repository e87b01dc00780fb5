"""Self-attention and the causal mask on numbers small enough to check by hand.

Three inputs of width 4 and three weight matrices with entries from 0 to 3: a classroom example. Every number shown is
read from the taps of the attention kernel that networks use.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from regard.labs import LabContext, LabFigure, LabResult
from regard.labs.charts import matrix
from regard.nn import FullAttention, make_layout, open_taps
from regard.plotting import new_figure, plot_style

METHOD = """
Three inputs of width 4 are multiplied by three weight matrices with entries from 0 to 3. Queries, keys, values, scores,
scaled scores, weights and outputs are read from the taps of the attention kernel and printed step by step. Then the
causal mask is applied to the scaled scores of four words. The claim is supported if every number agrees with the one
computed by hand, to the four decimals that are written down in the lab; and so do the outputs of the fused kernel that
training uses.
"""
LIMITATIONS = """
Three tokens and one head show the arithmetic, not what a trained network does with it.
"""

X = [[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]]
W_QUERY = [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]]
W_KEY = [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]]
W_VALUE = [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]]
WEIGHT_MATRICES = {"W_query": W_QUERY, "W_key": W_KEY, "W_value": W_VALUE}

# computed by hand; the kernel has to give the same numbers
BY_HAND: dict[str, list[list[float]]] = {
    "Q": [[1, 0, 2], [2, 2, 2], [2, 1, 3]],
    "K": [[0, 1, 1], [4, 4, 0], [2, 3, 1]],
    "V": [[1, 2, 3], [2, 8, 0], [2, 6, 3]],
    "scores": [[2, 4, 4], [4, 16, 12], [4, 12, 10]],
    "scaled": [[1.1547, 2.3094, 2.3094], [2.3094, 9.2376, 6.9282], [2.3094, 6.9282, 5.7735]],
    "weights": [[0.1361, 0.4319, 0.4319], [0.0009, 0.9088, 0.0903], [0.0074, 0.7547, 0.2378]],
    "output": [[1.8639, 6.3194, 1.7042], [1.9991, 7.8141, 0.2735], [1.9926, 7.4796, 0.7359]],
    "unscaled output": [[1.9366, 6.6831, 1.5951], [2.0000, 7.9640, 0.0540], [1.9997, 7.7599, 0.3584]],
    "causal weights": [
        [1, 0, 0, 0],
        [0.3775, 0.6225, 0, 0],
        [0.2584, 0.3156, 0.4260, 0],
        [0.2144, 0.2619, 0.2619, 0.2619],
    ],
}
TOLERANCE = 6e-5  # half a unit of the fourth decimal, and rounding of single precision

WORDS = ["<start>", "I", "am", "fine"]
SCALED_SCORES = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.3, 0.6, 0.1], [0.1, 0.3, 0.3, 0.3]]


def self_attention(scaled: bool = True) -> dict[str, Tensor]:
    """Return every matrix of the example by name, with or without the division by √d_k.

    >>> self_attention(scaled=False)["output"]
    tensor([[1.9366, 6.6831, 1.5951],
            [2.0000, 7.9640, 0.0540],
            [1.9997, 7.7599, 0.3584]])
    """
    x = torch.tensor(X, dtype=torch.float32)
    weights = {name: torch.tensor(w, dtype=torch.float32) for name, w in WEIGHT_MATRICES.items()}
    q, k, v = (x @ weights[name] for name in ("W_query", "W_key", "W_value"))
    kernel = FullAttention(scale=1 / math.sqrt(k.size(1)) if scaled else 1.0)
    heads, layout = (q[None, None], k[None, None], v[None, None]), make_layout(torch.zeros(1, 3))
    with open_taps(kernel) as seen:
        output = kernel(*heads, layout)[0, 0]
    steps = {name: t[0, 0] for name, t in seen.items()}
    fused = kernel(*heads, layout)[0, 0]  # with closed taps, as in training
    return {"X": x, **weights, "Q": q, "K": k, "V": v, **steps, "output": output, "fused output": fused}


def causal_attention() -> dict[str, Tensor]:
    """Return the causal mask over four words: scaled scores, mask, masked scores and weights.

    >>> causal_attention()["weights"]
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
    fused = kernel(scores[None, None], eye, eye, make_layout(torch.zeros(1, n), causal=True))[0, 0]
    masked = seen["masked"][0, 0]
    mask = torch.zeros(n, n).masked_fill(masked == -math.inf, -math.inf)
    return {"scores": scores, "mask": mask, "masked": masked, "weights": seen["weights"][0, 0], "fused": fused}


def run(context: LabContext) -> LabResult:
    """Compute the example and print it step by step."""
    names = ("Q", "K", "V", "scores", "scaled", "weights", "output")
    scaled, unscaled, causal = self_attention(), self_attention(scaled=False), causal_attention()
    computed = {
        **{name: [scaled[name]] for name in names},
        "output": [scaled["output"], scaled["fused output"]],
        "unscaled output": [unscaled["output"], unscaled["fused output"]],
        "causal weights": [causal["weights"], causal["fused"]],
    }
    errors = {
        name: max(_largest_difference(matrix, by_hand) for matrix in computed[name])
        for name, by_hand in BY_HAND.items()
    }
    wrong = [name for name, error in errors.items() if not error <= TOLERANCE]  # also if it is nan
    largest = [example["weights"].max(-1).values for example in (scaled, unscaled)]
    scaled_text, unscaled_text = (", ".join(f"{value:.2f}" for value in row.tolist()) for row in largest)
    future_weight = float(causal["weights"].triu(1).max())
    return LabResult(
        holds=not wrong and future_weight == 0,
        summary=f"{_agreement(wrong, len(BY_HAND))} The largest weight in each row is {scaled_text} with the division "
        f"by √d_k and {unscaled_text} without it. Under the causal mask the largest weight of a future position is "
        f"{format_entry(future_weight)}.",
        numbers={
            "self_attention": {name: scaled[name].tolist() for name in names},
            "unscaled_weights": unscaled["weights"].tolist(),
            "unscaled_output": unscaled["output"].tolist(),
            "causal_weights": causal["weights"].tolist(),
            "largest_difference": errors,
        },
        figures=[
            _weights_figure({"softmax(Q Kᵀ / √d_k)": scaled, "softmax(Q Kᵀ)": unscaled, "with the causal mask": causal})
        ],
        text=worked_text(),
    )


def _largest_difference(matrix: Tensor, by_hand: Sequence[Sequence[float]]) -> float:
    return float((matrix - torch.tensor(by_hand, dtype=matrix.dtype)).abs().max())


def _agreement(wrong: Sequence[str], matrices: int) -> str:
    if wrong:
        return f"Of {matrices} matrices, these differ from those computed by hand: {', '.join(wrong)}."
    return f"All {matrices} matrices that the attention kernel of the networks computes equal those computed by hand."


def _weights_figure(examples: Mapping[str, Mapping[str, Tensor]]) -> LabFigure:
    descriptions = []
    with plot_style():
        figure = new_figure(9.5, 3.4)
        for ax, (title, example) in zip(figure.subplots(1, len(examples)), examples.items(), strict=True):
            weights = example["weights"].tolist()
            names = WORDS if len(weights) == len(WORDS) else [f"token {n}" for n in range(1, len(weights) + 1)]
            texts = [[format_entry(value, decimals=2) for value in row] for row in weights]
            matrix(ax, weights, names, names, title=title, texts=texts)
            descriptions.append(f"{title}: {'; '.join(' '.join(row) for row in texts)}.")
    return LabFigure(
        "weights",
        "Attention weights, one row per query, stronger colors are larger: three tokens with and without the division "
        "by √d_k, and four words under the causal mask.",
        figure,
        f"Three matrices of attention weights, row by row. {' '.join(descriptions)}",
    )


# --- worked text ------------------------------------------------------------------------------------------------------


def worked_text() -> str:
    """Return the whole example as text."""
    return "\n".join([*_self_attention_text(), "", *_causal_mask_text()])


def _self_attention_text() -> list[str]:
    unscaled, scaled = self_attention(scaled=False), self_attention()
    lines = [
        "SELF-ATTENTION BY HAND        softmax(Q Kᵀ / √d_k) V",
        "",
        "Input: three tokens of width 4.",
        "",
    ]
    lines += _indent(side_by_side("X =", bracketed(unscaled["X"])))
    for step, (name, role) in enumerate({"Q": "query", "K": "key", "V": "value"}.items(), start=1):
        weight = f"W_{role}"
        lines += ["", f"{step}. Compute the {role} of each token:  {name} = X · {weight}", ""]
        factors = bracketed(unscaled["X"]), "·", bracketed(unscaled[weight])
        lines += _indent(side_by_side(*factors, "=", bracketed(unscaled[name])))
        lines += ["", f"   for example: {_dot_product(unscaled['X'][2], unscaled[weight][:, 2], f'{name}₃₃')}"]
    lines += ["", "4. Score each query with each key:  scores = Q · Kᵀ", ""]
    factors = bracketed(unscaled["Q"]), "·", bracketed(unscaled["K"].T)
    lines += _indent(side_by_side(*factors, "=", bracketed(unscaled["scores"])))
    lines += ["", f"   for example: {_dot_product(unscaled['Q'][1], unscaled['K'][1], 'score₂₂')}"]
    lines += ["", "5. Scores grow with the width of the keys, so divide by √d_k = √3 = 1.7321", ""]
    lines += _indent(side_by_side("scaled =", bracketed(scaled["scaled"])))
    lines += ["", "6. Softmax of each row: weights that sum to one", ""]
    lines += _indent(side_by_side("weights =", bracketed(scaled["weights"])))
    lines += ["", "7. Each output is a weighted sum of the values:  output = weights · V", ""]
    factors = bracketed(scaled["weights"]), "·", bracketed(scaled["V"])
    lines += _indent(side_by_side(*factors, "=", bracketed(scaled["output"])))
    lines += ["", "   Without step 5 the softmax is sharper and each output is closer to a single value:", ""]
    weights, output = bracketed(unscaled["weights"]), bracketed(unscaled["output"])
    lines += _indent(side_by_side("softmax(Q Kᵀ) =", weights, " output =", output))
    return lines


def _causal_mask_text() -> list[str]:
    example = causal_attention()
    lines = ["THE CAUSAL MASK        a word attends to itself and to earlier words", ""]
    lines += ["1. Scaled scores of four words, plus the mask", ""]
    scores = bracketed(example["scores"], rows=WORDS, columns=WORDS, decimals=1)
    mask, masked = ["", *bracketed(example["mask"])], ["", *bracketed(example["masked"], decimals=1)]
    lines += _indent(side_by_side(scores, "+", mask, "=", masked))
    lines += ["", "2. Softmax of each row: e^−∞ = 0, so future positions get weight 0", ""]
    lines += _indent(bracketed(example["weights"], rows=WORDS, columns=WORDS))
    lines += [
        "",
        "   Every row still sums to one. The mask is applied before softmax: a score of 0 would weigh e^0 = 1.",
    ]
    return lines


def _indent(lines: list[str]) -> list[str]:
    return [f"   {line}" for line in lines]


def _dot_product(a: Tensor, b: Tensor, name: str) -> str:
    """Return one entry of a matrix product, written out."""
    terms = " + ".join(f"{format_entry(x)}·{format_entry(y)}" for x, y in zip(a.tolist(), b.tolist(), strict=True))
    return f"{name} = {terms} = {format_entry(float(a @ b))}"


def format_entry(value: float, decimals: int = 4) -> str:
    """Format an entry of a matrix: integers without decimals, others with all of them.

    >>> format_entry(2.0), format_entry(0.5), format_entry(-1.0), format_entry(float("-inf"))
    ('2', '0.5000', '−1', '−∞')
    """
    if value == -math.inf:
        return "−∞"
    text = str(round(value)) if value == round(value) else f"{value:.{decimals}f}"
    return text.replace("-", "−")


def bracketed(values: Tensor, rows: Sequence[str] = (), columns: Sequence[str] = (), decimals: int = 4) -> list[str]:
    """Return the lines of a matrix (R, C) in brackets, optionally with names of rows and columns.

    >>> import torch
    >>> print(*bracketed(torch.tensor([[1.0, 0.5], [12.0, 0.0]])), sep="\\n")
    ⎡  1  0.5000 ⎤
    ⎣ 12       0 ⎦
    """
    cells = [[format_entry(value, decimals) for value in row] for row in values.tolist()]
    header = list(columns) or [""] * values.size(1)
    widths = [max(len(header[j]), *(len(row[j]) for row in cells)) for j in range(values.size(1))]
    names = list(rows) or [""] * len(cells)
    margin = max(len(name) for name in names)
    gap = " " if margin else ""
    lines = []
    if columns:
        labels = "  ".join(label.rjust(width) for label, width in zip(header, widths, strict=True))
        lines.append(" " * (margin + len(gap) + 2) + labels)
    for i, row in enumerate(cells):
        left, right = _brackets(i, len(cells))
        inside = "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"{names[i].rjust(margin)}{gap}{left} {inside} {right}")
    return lines


def side_by_side(*parts: list[str] | str) -> list[str]:
    """Return matrices and operators next to each other, vertically centered.

    >>> print(*side_by_side(["[1]", "[2]", "[3]"], "·", ["[4]"]), sep="\\n")
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


def _brackets(row: int, height: int) -> tuple[str, str]:
    if height == 1:
        return "[", "]"
    if row == 0:
        return "⎡", "⎤"
    return ("⎣", "⎦") if row == height - 1 else ("⎢", "⎥")
