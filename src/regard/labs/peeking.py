"""A language model trained without the look-ahead mask: what it costs to predict, and what it writes.

B pieces · T characters · V vocabulary
"""

from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from regard.config import DecoderOnlyConfig, SpecialTokensConfig
from regard.config.positions import RelativePositionsConfig
from regard.decoding.options import OutputConstraints, SamplingOptions
from regard.decoding.sampling import Sampler
from regard.labs.charts.bars import bars
from regard.labs.charts.lines import line_chart, over_seeds
from regard.labs.lab import LabContext, LabFigure, LabResult
from regard.labs.trials.fitting import FitResult, SymbolPrediction, fit
from regard.labs.trials.tasks import CharacterCorpus, python_docs
from regard.models import build
from regard.models.network import Network
from regard.plotting import new_figure, plot_style

METHOD = """
Two language models of characters, alike in everything but the look-ahead mask, learn from the same pieces of Python's
own documentation. Then each predicts a held-out part of it in two ways: all at once, as in training, where every
position is given the whole piece; and step by step, as when it writes, where what comes next is not there yet. Finally
each goes on with beginnings from the held-out part, character by character, drawn from its own probabilities, and
another network with the mask, which was trained from another seed, judges how probable that is.
"""
LIMITATIONS = """
Small networks and short training: neither comes to write well, and only how they compare is of interest. The model is
a decoder alone; a translator's decoder would cheat in the same way, though it could still fall back on its source. That
a network without the mask is of no use is true of writing: an encoder has no mask, and is trained on words that are
hidden instead. The answer to the last character of a piece lies outside of it: even a network that peeks keeps some
loss.
"""

HONEST, PEEKING, REAL = "with the mask", "without it", "the real text"
MASKS = {HONEST: True, PEEKING: False}
BEGINNING = 16  # characters that are given


@dataclass(frozen=True)
class Sizes:
    """How large the networks are, and how long they learn."""

    width: int
    layers: int
    length: int
    steps: int
    characters: int


def run(context: LabContext) -> LabResult:
    """Train both, predict in both ways, write, judge, draw."""
    sizes = context.by_effort(
        Sizes(width=64, layers=1, length=32, steps=200, characters=100_000),
        Sizes(width=96, layers=2, length=48, steps=400, characters=10**6),
        Sizes(width=128, layers=2, length=64, steps=800, characters=10**6),
    )
    seeds, tests = context.by_effort(1, 3, 3), context.by_effort(48, 64, 128)
    text = python_docs(sizes.characters)
    judge, _ = _learn(True, sizes, text, seed=seeds)
    piece = text.validation_batch(sizes.length, tests)
    begun, real = piece.inputs[:, :BEGINNING], piece.inputs[:, BEGINNING:]
    trained: dict[str, list[FitResult]] = {name: [] for name in MASKS}
    at_once, stepwise = ({name: list[float]() for name in MASKS} for _ in range(2))
    judged = {REAL: [surprise(judge, begun, real)], **{name: list[float]() for name in MASKS}}
    samples: dict[str, list[str]] = {}
    for name, mask in MASKS.items():
        for seed in range(seeds):
            network, fitted = _learn(mask, sizes, text, seed)
            trained[name].append(fitted)
            with torch.no_grad():
                at_once[name].append(float(SymbolPrediction(network)(piece).cross_entropy) / piece.targets)
            stepwise[name].append(step_by_step(network, piece.inputs, piece.labels))
            written = write(network, begun, real.size(1), seed)
            judged[name].append(surprise(judge, begun, written))
            samples.setdefault(name, [_shown(text, row) for row in written[:3]])
        context.log(f"  {name}: {fmean(at_once[name]):.2f} nats all at once, {fmean(stepwise[name]):.2f} step by step")
    final = {name: [fitted.final_loss for fitted in runs] for name, runs in trained.items()}
    return LabResult(
        holds=max(final[PEEKING]) < 0.4 * min(final[HONEST])
        and min(stepwise[PEEKING]) > max(3 * max(at_once[PEEKING]), 1.2 * max(stepwise[HONEST]))
        and max(abs(a - b) for a, b in zip(at_once[HONEST], stepwise[HONEST], strict=True)) < 0.01
        and min(judged[PEEKING]) > 1.1 * max(judged[HONEST]),
        summary=f"In the last tenth of {sizes.steps} steps the training loss is {fmean(final[PEEKING]):.3f} nats a "
        f"character without the mask and {fmean(final[HONEST]):.2f} with it. On held-out text all at once it is "
        f"{fmean(at_once[PEEKING]):.3f} and {fmean(at_once[HONEST]):.2f}; step by step, when the next character is not "
        f"there to be read, {fmean(stepwise[PEEKING]):.2f} and {fmean(stepwise[HONEST]):.2f}. To another network what "
        f"they write costs {fmean(judged[PEEKING]):.2f} and {fmean(judged[HONEST]):.2f} nats a character; the real "
        f"text {judged[REAL][0]:.2f} (seeds: {seeds}).",
        numbers={
            "training_loss": final,
            "held_out_all_at_once": at_once,
            "held_out_step_by_step": stepwise,
            "judged": judged,
            "written": samples,
        },
        figures=[_draw(trained, at_once, stepwise, judged)],
        text=_board([_shown(text, row) for row in begun[:3]], samples),
    )


def _learn(mask: bool, sizes: Sizes, text: CharacterCorpus, seed: int) -> tuple[Network, FitResult]:
    torch.manual_seed(seed)
    network = build(
        DecoderOnlyConfig(
            vocab_size=text.vocab_size,
            width=sizes.width,
            layers=sizes.layers,
            heads=4,
            feed_forward=2 * sizes.width,
            positions=RelativePositionsConfig(max_distance=16),  # by which "the next one" is quickly found
            dropout=0.0,
            causal_mask=mask,
        )
    )
    return network, fit(network, text.batches(sizes.length, 16, seed), sizes.steps, learning_rate=8e-3)


@torch.no_grad()
def step_by_step(network: Network, read: Tensor, answers: Tensor) -> float:
    """The loss in nats a character where each is predicted before the next is read, as in writing."""
    cache, total = network.new_cache(), 0.0
    for place in range(read.size(1)):
        logits = network.logits(network.decode(read[:, place : place + 1], cache=cache)[:, 0])  # (B, V)
        total += float(torch.nn.functional.cross_entropy(logits, answers[:, place]))
    return total / read.size(1)


def surprise(judge: Network, begun: Tensor, written: Tensor) -> float:
    """What a network with the mask thinks of what was written after the beginnings, in nats a character."""
    text = torch.cat([begun, written], dim=1)
    with torch.no_grad():
        logits = judge.logits(judge.decode(text[:, :-1])[:, begun.size(1) - 1 :])  # (B, T, V)
    return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), written.flatten()))


def write(network: Network, begun: Tensor, length: int, seed: int) -> Tensor:
    """So many characters after each beginning, drawn from the network's own probabilities."""
    tokens = SpecialTokensConfig()
    bounds = OutputConstraints(shortest=length, longest=length, forbidden=((tokens.unknown,),))
    writer = Sampler([network], begun.tolist(), range(len(begun)), tokens, SamplingOptions(seed=seed, bounds=bounds))
    while writer.open:
        writer.step()
    return torch.tensor([writer.text(row) for row in range(len(begun))])


def _shown(text: CharacterCorpus, row: Tensor) -> str:
    return text.tokenizer.decode(row.tolist()).replace("\n", "↵")


def _board(begun: list[str], samples: dict[str, list[str]]) -> str:
    lines = []
    for n, beginning in enumerate(begun):
        lines += [f"{beginning}…", *(f"  {name:14} …{written[n]}" for name, written in samples.items()), ""]
    return "\n".join(lines[:-1])


def _draw(
    trained: dict[str, list[FitResult]],
    at_once: dict[str, list[float]],
    stepwise: dict[str, list[float]],
    judged: dict[str, list[float]],
) -> LabFigure:
    with plot_style():
        figure = new_figure(10.5, 3.6)
        left, right = figure.subplots(1, 2)
        places = range(1, len(trained[HONEST][0].losses) + 1)
        lines = {name: over_seeds(places, [fitted.losses for fitted in runs]) for name, runs in trained.items()}
        line_chart(left, lines, title="loss in training, nats a character", xlabel="step", yscale="log", markers=False)
        names = (*MASKS, REAL)
        groups = {
            "held out,\nall at once": at_once,
            "held out,\nstep by step": stepwise,
            "what it writes,\njudged by another": {name: judged[name] for name in names},
        }
        bars(right, groups, title="after training, nats a character")
    measured = {
        "in training, in the end": {name: [fitted.final_loss for fitted in runs] for name, runs in trained.items()},
        **{name.replace("\n", " "): group for name, group in groups.items()},
    }
    told = (
        f"{what}: {', '.join(f'{fmean(values):.2f} {name}' for name, values in group.items())}"
        for what, group in measured.items()
    )
    return LabFigure(
        "peeking",
        "The same network with the look-ahead mask and without: its loss in training, what it makes of text it has not "
        "seen, and what another network makes of the text it writes.",
        figure,
        f"On the left, the loss against the step of training, a line for each network; on the right, bars. In nats a "
        f"character, {'; '.join(told)}.",
    )
