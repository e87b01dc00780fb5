"""A language model trained without the causal mask: its loss, and the text it generates.

B batch · T characters · V vocabulary
"""

from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from regard.config import DecoderOnlyConfig, SpecialTokensConfig
from regard.config.positions import RelativePositionsConfig
from regard.decoding.options import OutputConstraints, SamplingOptions
from regard.decoding.sampling import Sampler
from regard.labs import LabContext, LabFigure, LabResult
from regard.labs.charts import bars, line_chart, over_seeds
from regard.labs.trials import CharacterCorpus, FitResult, SymbolPrediction, fit, python_docs
from regard.models import build
from regard.models.network import Network
from regard.plotting import new_figure, plot_style

METHOD = """
Two character-level language models that differ only in the causal mask are trained on the same excerpts of the Python
documentation. Each is evaluated on validation text in two ways: in parallel, as in training, where every position is
given the whole excerpt; and incrementally, as in generation, where the next character is not yet available. Then each
continues prompts from the validation text by sampling, and a reference model (with the mask, another seed) measures the
cross entropy of the generated text.
"""
LIMITATIONS = """
The networks are small and training is short: neither generates good text, and only their difference matters. The model
is decoder-only; a translation decoder would leak in the same way but could still use its source. Without a mask a
network is useless for generation, not in general: encoders have no causal mask and are trained on masked tokens
instead. The label of the last character of an excerpt lies outside it, so some loss remains even without the mask.
"""

CAUSAL, UNMASKED, REAL = "causal mask", "no mask", "real text"
MASK_VARIANTS = {CAUSAL: True, UNMASKED: False}
PROMPT_LENGTH = 16


@dataclass(frozen=True)
class ExperimentSize:
    """Size of the networks and of their training."""

    width: int
    layers: int
    length: int
    steps: int
    characters: int


def run(context: LabContext) -> LabResult:
    """Train both models, evaluate them in both ways, generate text and score it."""
    size = context.by_effort(
        ExperimentSize(width=64, layers=1, length=32, steps=200, characters=100_000),
        ExperimentSize(width=96, layers=2, length=48, steps=400, characters=10**6),
        ExperimentSize(width=128, layers=2, length=64, steps=800, characters=10**6),
    )
    seeds, tests = context.by_effort(1, 3, 3), context.by_effort(48, 64, 128)
    corpus = python_docs(size.characters)
    reference, _ = _train(True, size, corpus, seed=seeds)
    excerpts = corpus.validation_batch(size.length, tests)
    prompts, real = excerpts.inputs[:, :PROMPT_LENGTH], excerpts.inputs[:, PROMPT_LENGTH:]
    fits: dict[str, list[FitResult]] = {name: [] for name in MASK_VARIANTS}
    parallel, incremental = ({name: list[float]() for name in MASK_VARIANTS} for _ in range(2))
    generated_loss = {
        REAL: [continuation_loss(reference, prompts, real)],
        **{name: list[float]() for name in MASK_VARIANTS},
    }
    samples: dict[str, list[str]] = {}
    for name, causal_mask in MASK_VARIANTS.items():
        for seed in range(seeds):
            network, fitted = _train(causal_mask, size, corpus, seed)
            fits[name].append(fitted)
            with torch.no_grad():
                parallel[name].append(float(SymbolPrediction(network)(excerpts).cross_entropy) / excerpts.targets)
            incremental[name].append(incremental_loss(network, excerpts.inputs, excerpts.labels))
            generated = generate(network, prompts, real.size(1), seed)
            generated_loss[name].append(continuation_loss(reference, prompts, generated))
            samples.setdefault(name, [_text(corpus, row) for row in generated[:3]])
        context.log(
            f"  {name}: {fmean(parallel[name]):.2f} nats in parallel, {fmean(incremental[name]):.2f} incrementally"
        )
    final = {name: [fitted.final_loss for fitted in runs] for name, runs in fits.items()}
    return LabResult(
        holds=max(final[UNMASKED]) < 0.4 * min(final[CAUSAL])
        and min(incremental[UNMASKED]) > max(3 * max(parallel[UNMASKED]), 1.2 * max(incremental[CAUSAL]))
        and max(abs(a - b) for a, b in zip(parallel[CAUSAL], incremental[CAUSAL], strict=True)) < 0.01
        and min(generated_loss[UNMASKED]) > 1.1 * max(generated_loss[CAUSAL]),
        summary=f"In the last tenth of {size.steps} steps the training loss is {fmean(final[UNMASKED]):.3f} nats per "
        f"character without the mask and {fmean(final[CAUSAL]):.2f} with it. On validation text it is "
        f"{fmean(parallel[UNMASKED]):.3f} and {fmean(parallel[CAUSAL]):.2f} in parallel, and "
        f"{fmean(incremental[UNMASKED]):.2f} and {fmean(incremental[CAUSAL]):.2f} incrementally, when the next "
        f"character is not available. The reference model gives the generated text "
        f"{fmean(generated_loss[UNMASKED]):.2f} and {fmean(generated_loss[CAUSAL]):.2f} nats per character, and the "
        f"real text {generated_loss[REAL][0]:.2f} (seeds: {seeds}).",
        numbers={
            "training_loss": final,
            "validation_loss_parallel": parallel,
            "validation_loss_incremental": incremental,
            "reference_model_loss": generated_loss,
            "samples": samples,
        },
        figures=[_figure(fits, parallel, incremental, generated_loss)],
        text=_samples_text([_text(corpus, row) for row in prompts[:3]], samples),
    )


def _train(causal_mask: bool, size: ExperimentSize, corpus: CharacterCorpus, seed: int) -> tuple[Network, FitResult]:
    torch.manual_seed(seed)
    network = build(
        DecoderOnlyConfig(
            vocab_size=corpus.vocab_size,
            width=size.width,
            layers=size.layers,
            heads=4,
            feed_forward=2 * size.width,
            positions=RelativePositionsConfig(max_distance=16),  # makes the next position easy to find
            dropout=0.0,
            causal_mask=causal_mask,
        )
    )
    return network, fit(network, corpus.batches(size.length, 16, seed), size.steps, learning_rate=8e-3)


@torch.no_grad()
def incremental_loss(network: Network, inputs: Tensor, labels: Tensor) -> float:
    """Return the cross entropy per character when each is predicted before the next is given, as in generation."""
    cache, total = network.new_cache(), 0.0
    for position in range(inputs.size(1)):
        logits = network.logits(network.decode(inputs[:, position : position + 1], cache=cache)[:, 0])  # (B, V)
        total += float(torch.nn.functional.cross_entropy(logits, labels[:, position]))
    return total / inputs.size(1)


def continuation_loss(reference: Network, prompts: Tensor, continuations: Tensor) -> float:
    """Return the cross entropy per character of continuations under the reference model."""
    text = torch.cat([prompts, continuations], dim=1)
    with torch.no_grad():
        logits = reference.logits(reference.decode(text[:, :-1])[:, prompts.size(1) - 1 :])  # (B, T, V)
    return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), continuations.flatten()))


def generate(network: Network, prompts: Tensor, length: int, seed: int) -> Tensor:
    """Return sampled continuations (B, length) of the prompts."""
    tokens = SpecialTokensConfig()
    bounds = OutputConstraints(min_tokens=length, max_tokens=length, suppressed_sequences=((tokens.unknown,),))
    sampler = Sampler(
        [network], prompts.tolist(), range(len(prompts)), tokens, SamplingOptions(seed=seed, constraints=bounds)
    )
    while sampler.active:
        sampler.step()
    return torch.tensor([sampler.generated(row) for row in range(len(prompts))])


def _text(corpus: CharacterCorpus, row: Tensor) -> str:
    return corpus.tokenizer.decode(row.tolist()).replace("\n", "↵")


def _samples_text(prompts: list[str], samples: dict[str, list[str]]) -> str:
    lines = []
    for n, prompt in enumerate(prompts):
        lines += [f"{prompt}…", *(f"  {name:14} …{texts[n]}" for name, texts in samples.items()), ""]
    return "\n".join(lines[:-1])


def _figure(
    fits: dict[str, list[FitResult]],
    parallel: dict[str, list[float]],
    incremental: dict[str, list[float]],
    generated_loss: dict[str, list[float]],
) -> LabFigure:
    with plot_style():
        figure = new_figure(10.5, 3.6)
        left, right = figure.subplots(1, 2)
        steps = range(1, len(fits[CAUSAL][0].losses) + 1)
        lines = {name: over_seeds(steps, [fitted.losses for fitted in runs]) for name, runs in fits.items()}
        title = "training loss (nats per character)"
        line_chart(left, lines, title=title, xlabel="step", yscale="log", markers=False)
        groups = {
            "validation,\nparallel": parallel,
            "validation,\nincremental": incremental,
            "generated,\nreference model": {name: generated_loss[name] for name in (*MASK_VARIANTS, REAL)},
        }
        bars(right, groups, title="loss after training (nats per character)")
    losses = {
        "end of training": {name: [fitted.final_loss for fitted in runs] for name, runs in fits.items()},
        **{name.replace("\n", " "): group for name, group in groups.items()},
    }
    descriptions = (
        f"{group_name}: {', '.join(f'{fmean(values):.2f} {name}' for name, values in group.items())}"
        for group_name, group in losses.items()
    )
    return LabFigure(
        "peeking",
        "The same network with and without the causal mask: training loss, validation loss in parallel and "
        "incrementally, and loss of the generated text under a reference model.",
        figure,
        "On the left, training loss by step, a line for each network; on the right, bars. In nats per character, "
        f"{'; '.join(descriptions)}.",
    )
