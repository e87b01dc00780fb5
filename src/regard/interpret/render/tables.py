"""Tables of a trace: rich tables for the terminal, and sheets and texts that the terminal and the HTML page share."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from regard.interpret.attribution import GradientNorms
from regard.interpret.forward_pass import ForwardPass
from regard.interpret.interventions import InterventionResult
from regard.interpret.predictions import HeadPrediction, HeadPredictions, head_predictions
from regard.interpret.tensors import TensorSlice
from regard.interpret.training_step import TrainingPosition, TrainingStep
from regard.tables import new_table

MAX_MATRIX_COLUMNS = 14  # wider matrices show only the three largest numbers of each row
MAX_TENSOR_COLUMNS = 12  # shown of units and vocabulary
MAX_ALTERNATIVES = 3  # shown besides the best
ATTENTION_TITLES = {"attention": "self-attention", "cross_attention": "cross-attention"}
CAUTION = (
    "Attention is not explanation: weights show where a head attends, not what the output depends on. The cost of "
    "leaving a word out, or of switching a head off, shows that."
)


# --- cells and matrices -----------------------------------------------------------------------------------------------


def matrix_table(rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]]) -> Table:
    """Return a matrix with labels, the largest number of each row in bold."""
    if len(columns) > MAX_MATRIX_COLUMNS:
        table = new_table("", "largest", "second", "third")
        for label, row in zip(rows, values, strict=True):
            order = sorted(range(len(row)), key=lambda n: -row[n])[:3]
            table.add_row(Text(label), *(Text(f"{columns[n]} {format_number(row[n])}") for n in order))
        return table
    table = new_table("", *columns)
    for label, row in zip(rows, values, strict=True):
        largest = max(row)
        table.add_row(Text(label), *(_matrix_cell(value, value == largest) for value in row))
    return table


def _matrix_cell(value: float, largest: bool) -> Text:
    style = "bold cyan" if largest else "dim" if value < 0.05 else ""
    return Text(format_number(value), style=style)


def format_number(value: float, digits: int = 2) -> str:
    """Format a number with fixed digits; numbers that round to zero become a dot."""
    if math.isinf(value):
        return "−∞"
    return f"{value:.{digits}f}" if abs(value) >= 0.5 * 10**-digits else "·"


def format_vector(values: Sequence[float], count: int = 5) -> str:
    """Format the first numbers of a vector."""
    rest = " …" if len(values) > count else ""
    return " ".join(f"{value:6.2f}" for value in values[:count]) + rest


def format_experts(gates: Mapping[int, float]) -> str:
    """Format the gates of a token's experts.

    >>> format_experts({3: 0.75, 0: 0.25})
    '3: 0.75, 0: 0.25'
    """
    return ", ".join(f"{number}: {gate:.2f}" for number, gate in gates.items())


def bar(fraction: float, width: int = 20) -> Text:
    """Return a fraction of one as a bar of block characters."""
    eighths = round(fraction * width * 8)
    blocks = "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
    return Text(blocks.ljust(width), style="cyan")


# --- tensors, interventions, gradients and training -------------------------------------------------------------------


def tensor_tables(tensor: TensorSlice) -> Iterator[RenderableType]:
    """Render a tensor as matrices, one for each index of the axes before the last two."""
    sizes = " × ".join(f"{size} {axis.replace('_', ' ')}" for size, axis in zip(tensor.shape, tensor.axes, strict=True))
    yield Text.assemble((tensor.address, "bold"), f"  {tensor.description}  ", (f"({sizes})", "dim"))
    is_vector = tensor.values.ndim == 1
    values = tensor.values.reshape(1, -1) if is_vector else tensor.values
    labels = (None, tensor.labels[0]) if is_vector else tensor.labels
    rows = [""] if is_vector else _labels_or_numbers(labels[-2], values.shape[-2])
    shown = min(MAX_TENSOR_COLUMNS, values.shape[-1])
    columns = _labels_or_numbers(labels[-1], values.shape[-1])[:shown]
    for index in product(*(range(size) for size in values.shape[:-2])):
        if index:
            yield Text(", ".join(f"{axis} {n}" for axis, n in zip(tensor.axes, index, strict=False)), style="italic")
        yield matrix_table(rows, columns, values[index][:, :shown].tolist())
    if shown < values.shape[-1]:
        yield Text(f"first {shown} of {values.shape[-1]} columns; use --json for all", style="dim")


def _labels_or_numbers(labels: list[str] | None, count: int) -> list[str]:
    return labels if labels is not None else [str(n) for n in range(count)]


class ResultTexts(NamedTuple):
    """Texts for one kind of intervention result."""

    same: str
    different: str
    scored: str
    columns: tuple[str, ...]


RESULT_TEXTS = {
    "output": ResultTexts(
        "The output is unchanged", "The outputs differ from step {step}", "log p of the original output", ("token",)
    ),
    "classes": ResultTexts("The label is unchanged", "The label changed", "log p of {}", ("label",)),
    "tags": ResultTexts(
        "The tags are unchanged", "The tags differ from {token}", "log p of the tags", ("token", "tag")
    ),
    "tokens": ResultTexts(
        "The predictions are unchanged", "The predictions differ from {token}", "log p of the tokens", ("at", "token")
    ),
}


def intervention_tables(result: InterventionResult) -> Iterator[RenderableType]:
    """Render both outputs, and the original output token by token."""
    yield Text.assemble(("Changed: ", "dim"), ", ".join(result.interventions))
    yield Text.assemble(("before  ", "dim"), result.before)
    yield Text.assemble(("after   ", "dim"), (result.after, "bold" if not result.same else ""))
    texts = RESULT_TEXTS[result.kind]
    first = result.first_difference
    token = None if first is None else result.steps[min(first, len(result.steps) - 1)].source_token
    summary = texts.same if result.same else texts.different.format(step=first, token=token)
    yield Text(f"{summary}; {texts.scored.format(result.steps[0].token)} falls by {result.cost:.3f}.")
    table = new_table(*texts.columns, "p before", "p after", "", "KL divergence", left=len(texts.columns))
    for step in result.steps:
        names = [Text(name) for name in (step.source_token, step.token) if name is not None]
        before, after = math.exp(step.before), math.exp(step.after)
        table.add_row(*names, f"{before:.3f}", f"{after:.3f}", bar(after, 12), f"{step.kl_divergence:.3f}")
    yield table


def gradient_table(gradients: GradientNorms) -> Iterator[RenderableType]:
    """Render the gradient norm of each module, in the order of the network."""
    yield Text("Gradient norm of each module for the mean loss of this output.")
    largest = max(module.grad_norm for module in gradients.modules) or 1.0
    table = new_table("module", "grad norm", "", "relative to weights", "parameters")
    for module in gradients.modules:
        table.add_row(
            Text(module.module),
            f"{module.grad_norm:.3f}",
            bar(module.grad_norm / largest),
            f"{module.relative_grad_norm:.4f}",
            f"{module.parameters:,}",
        )
    yield table
    yield Text(f"loss {gradients.loss:.3f}, total gradient norm {gradients.grad_norm:.3f}", style="dim")


def training_tables(step: TrainingStep) -> Iterator[RenderableType]:
    """Render a training step: what is read, what is to be predicted, and the loss at each position."""
    yield Text("One training step: every position predicts its label in the same pass.", style="bold")
    texts = {"encoder input": step.source, "decoder input": step.decoder_input}
    labels = [position.label for position in step.labels if position.label is not None]
    for name, tokens in {**texts, "labels": labels}.items():
        if tokens:
            yield Text.assemble((name.ljust(15), "dim"), " ".join(tokens))
    two_directions = any(position.direction for position in step.positions)
    columns = ["position", "input", *(["direction"] if two_directions else []), "label"]
    ε, count = step.label_smoothing, len(step.labels)
    numbers = ["−log p", "mean −log p", "loss"] if ε else ["loss"]
    table = new_table(*columns, "p", "", *numbers, "most probable", left=len(columns))
    table.columns[-1].justify = "left"
    for position in step.positions:
        direction = [Text(position.direction or "")] if two_directions else []
        table.add_row(
            "text" if position.position is None else str(position.position),
            Text(position.input_token or ""),
            *direction,
            *_training_cells(position, smoothed=ε > 0),
        )
    yield table
    if ε:
        yield Text(
            f"label smoothing: loss = {1 - ε:g} · (−log p) + {ε:g} · mean of −log p over {step.choices:,} choices"
        )
    total = f"{step.loss * count:.4f} / {count} label{'s' if count > 1 else ''}"
    yield Text.assemble(("loss ", "bold"), (f"{step.loss:.4f}", "bold cyan"), f" = {total}")
    smoothing = f"without label smoothing {step.cross_entropy:.4f}, " if ε else ""
    yield Text(f"{smoothing}perplexity {math.exp(step.cross_entropy):.2f}")
    for note in step.notes:
        yield Text(note, style="dim")


def _training_cells(position: TrainingPosition, *, smoothed: bool) -> list[Text]:
    if position.label is None or position.probability is None:
        return [Text("no label", style="dim")]
    numbers = (position.cross_entropy, position.smoothing, position.loss) if smoothed else (position.loss,)
    return [
        Text(position.label, style="bold cyan"),
        Text(f"{position.probability:.3f}"),
        bar(position.probability, 12),
        *(Text(f"{number:.4f}") for number in numbers),
        Text(position.best or ""),
    ]


# --- sheets -----------------------------------------------------------------------------------------------------------


Cell = str | float | None


@dataclass(frozen=True)
class Sheet:
    """A table of text and fractions; fractions are shown with bars. None is an empty cell."""

    title: str
    note: str
    columns: dict[str, type[str] | type[float]]
    rows: list[list[Cell]]


def encoder_sheets(trace: ForwardPass) -> Iterator[Sheet]:
    """Return the tables of this network; none for decoders."""
    if trace.mixing is not None:
        note = "weight of each layer in a token's vector, before the scale"
        yield Sheet("Mixing", note, {"layer": str, "weight": float}, [[*pair] for pair in trace.mixing.items()])
    head = head_predictions(trace)
    if head is not None:
        yield _head_sheet(head)


def _head_sheet(head: HeadPredictions) -> Sheet:
    if head.kind == "classes":
        (text,) = head.predictions
        rows: list[list[Cell]] = [[label.token, label.probability] for label in text.candidates]
        return Sheet("Label", "predicted label of the text", {"label": str, "p": float}, rows)
    if head.kind == "tags":
        note = "tag of each token; the tag of a word is that of its first token"
        rows = [[p.token, p.best.token, p.best.probability, _alternatives(p)] for p in head.predictions]
        return Sheet("Tags", note, {"token": str, "tag": str, "p": float, "others": str}, rows)
    if any(prediction.direction for prediction in head.predictions):
        return _bidirectional_sheet(head)
    note = "predicted token at each position, and the probability of the actual token, which is visible unless [MASK]"
    columns = {"token": str, "p": float, "prediction": str, "p of the prediction": float, "others": str}
    rows = [[p.token, p.probability, p.best.token, p.best.probability, _alternatives(p)] for p in head.predictions]
    return Sheet("Predicted tokens", note, columns, rows)


def _bidirectional_sheet(head: HeadPredictions) -> Sheet:
    note = "probability of each token given the tokens before it (forwards) and after it (backwards), with the best"
    rows = []
    for _, group in groupby(head.predictions, key=lambda prediction: prediction.position):
        by_direction = {prediction.direction: prediction for prediction in group}
        token = next(iter(by_direction.values())).token
        rows.append([token, *_best(by_direction.get("forwards")), *_best(by_direction.get("backwards"))])
    columns = {"token": str, "p forwards": float, "best forwards": str, "p backwards": float, "best backwards": str}
    return Sheet("Bidirectional predictions", note, columns, rows)


def _best(prediction: HeadPrediction | None) -> list[Cell]:
    if prediction is None:
        return [None, None]
    return [prediction.probability, f"{prediction.best.token} {prediction.best.probability:.3f}"]


def _alternatives(prediction: HeadPrediction) -> str:
    others = prediction.candidates[1 : 1 + MAX_ALTERNATIVES]
    return "  ".join(f"{other.token} {format_number(other.probability, 3)}" for other in others)
