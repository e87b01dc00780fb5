"""Labs run, and a deliberately broken network, or a broken input, makes their verdicts fail.

Each break is made for one condition of the verdict. Labs that need translation models are in
`test_translation_lab_verdicts.py`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lab_runs import TRANSLATION_LABS, assert_lab_is_complete
from regard.config import DecoderOnlyConfig, ModelConfig, WindowAttentionConfig
from regard.config.positions import NoPositionsConfig, RelativePositionsConfig, SinusoidalPositionsConfig
from regard.labs import (
    LABS,
    LabContext,
    LabResult,
    all_labs,
    complexity,
    depth,
    distance,
    feed_forward,
    gradients,
    memory,
    modern,
    order,
    peeking,
    positions,
    quadratic,
    scaling,
    steps,
    worked_example,
)
from regard.labs.trials import CharacterCorpus
from regard.models import build
from regard.models.network import Network
from regard.nn import FullAttention

Patch = pytest.MonkeyPatch
Break = Callable[[Patch], None]


# Functions that train networks and whose results depend on their arguments only. What a break does not change is
# trained once for all tests.
PURE_FUNCTIONS = [
    (depth, "_best_accuracies"),
    (depth, "_surfaces"),
    (distance, "_recall"),
    (modern, "_train"),
    (peeking, "_train"),
    (scaling, "_learn_copying"),
]


@pytest.fixture(scope="module", autouse=True)
def train_once() -> Iterator[None]:
    def remember(function: Callable[..., Any]) -> Callable[..., Any]:
        results: dict[str, Any] = {}

        def remembered(*arguments: Any, **options: Any) -> Any:
            values = [value for value in arguments if not isinstance(value, (LabContext, CharacterCorpus))]
            key = repr((values, options))
            if key not in results:
                results[key] = function(*arguments, **options)
            return results[key]

        return remembered

    with pytest.MonkeyPatch.context() as patch:
        for module, name in PURE_FUNCTIONS:
            patch.setattr(module, name, remember(getattr(module, name)))
        yield


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], LabResult]:
    """The result of a lab that was not broken."""
    return cache(partial(assert_lab_is_complete, out=tmp_path_factory.mktemp("labs")))


@pytest.mark.slow
@pytest.mark.parametrize("name", [lab.name for lab in all_labs() if lab.name not in TRANSLATION_LABS])
def test_numbers_support_the_claim(name: str, complete: Callable[[str], LabResult]) -> None:
    complete(name)


def run(name: str, folder: Path) -> LabResult:
    return LABS[name].experiment.run(LabContext("quick", folder))


# --- breaks -----------------------------------------------------------------------------------------------------------


class ReversedValues(FullAttention):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **options: Any) -> Tensor:
        return super().forward(q, k, 3 * v.flip(-1), *rest, **options)


class HalvedScores(FullAttention):
    def __init__(self, scale: float) -> None:
        super().__init__(scale / 2)


class NoMask(FullAttention):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, layout: Any, *rest: Any, **options: Any) -> Tensor:
        unmasked = replace(layout, mask=replace(layout.mask, causal=False))
        return super().forward(q, k, v, unmasked, *rest, **options)


class BrokenFusedKernel(FullAttention):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **options: Any) -> Tensor:
        return super().forward(q, k, v if self.is_stepwise else 1.01 * v, *rest, **options)


def kernel(broken: type[FullAttention]) -> Break:
    return lambda patch: patch.setattr(worked_example, "FullAttention", broken)


def item(table: dict[Any, Any], name: Any, value: Any) -> Break:
    """Replace an entry of a table of networks."""
    return lambda patch: patch.setitem(table, name, value)


def swapped_networks(name: str, other: str) -> Break:
    """Replace a network of the lab `steps` by another one."""

    def networks(width: int, original: Any = steps._networks) -> dict[str, Network]:
        built = dict(original(width))
        return {**built, name: built[other]}

    return lambda patch: patch.setattr(steps, "_networks", networks)


def untrained(module: Any) -> Break:
    """Leave the networks of a lab as they are initialized."""

    def fit(network: Network, batches: Any, steps: int, **options: Any) -> Any:
        return original(network, batches, steps, **{**options, "learning_rate": 1e-9})

    original = module.fit
    return lambda patch: patch.setattr(module, "fit", fit)


def narrow_transformer(patch: Patch) -> None:
    """Give the Transformer of the lab `distance` a window that is too short for the longest distance."""
    original = distance._transformer

    def windowed(width: int) -> ModelConfig:
        config = original(width)
        assert isinstance(config, DecoderOnlyConfig)
        return config.model_copy(update={"attention": WindowAttentionConfig(window=4)})

    patch.setattr(distance, "_transformer", windowed)


def only_transformers(patch: Patch) -> None:
    names = (distance.RNN, distance.LSTM, distance.GRU, distance.TRANSFORMER)
    patch.setattr(distance, "equal_size_configs", lambda config: dict.fromkeys(names, config))


def scaled_softmax(patch: Patch) -> None:
    def softmax_stats(width: int, queries: int, original: Any = scaling.softmax_stats) -> Any:
        return dict.fromkeys((True, False), original(width, queries)[True])

    patch.setattr(scaling, "softmax_stats", softmax_stats)


def scaled_training(patch: Patch) -> None:
    original = scaling._learn_copying
    patch.setattr(scaling, "_learn_copying", lambda scaled, *rest: original(True, *rest))


def unlearned_positions(patch: Patch) -> None:
    """Use rotary positions where the lab `positions` asks for learned ones, which are then not limited in length."""
    original = positions._network
    patch.setattr(positions, "_network", lambda name, *rest: original("rotary" if name == "learned" else name, *rest))


def attention_kinds(name: str, other: str) -> Break:
    """Replace a layer of the lab `quadratic` by another one."""

    def configs(sizes: Any, original: Any = quadratic._configs) -> Any:
        by_name = original(sizes)
        return {**by_name, name: by_name[other]}

    return lambda patch: patch.setattr(quadratic, "_configs", configs)


def restricted_everywhere(patch: Patch) -> None:
    original = complexity.encoder
    patch.setattr(complexity, "encoder", lambda width, layers=1, window=None: original(width, layers, window or 32))


def forgetful_rnn(patch: Patch) -> None:
    """Set the recurrent weights of the RNN to zero, so that no state depends on earlier tokens."""

    def rnn(width: int, original: Any = complexity.rnn) -> Network:
        network: Network = original(width)
        for name, weight in network.named_parameters():
            if "h_weight" in name or "weight_hh" in name:
                torch.nn.init.zeros_(weight)
        return network

    patch.setattr(complexity, "rnn", rnn)


def contiguous_convolutions(patch: Patch) -> None:
    original = complexity.convolution_path
    patch.setattr(complexity, "convolution_path", lambda length, dilated: original(length, dilated=False))


# --- verdicts ---------------------------------------------------------------------------------------------------------

RNN, TRANSFORMER = gradients.NETWORKS[gradients.RNN], gradients.NETWORKS[gradients.TRANSFORMER]
FAST: list[tuple[str, str, Break]] = [
    ("worked-example", "values reversed and tripled", kernel(ReversedValues)),
    ("worked-example", "scores halved", kernel(HalvedScores)),
    ("worked-example", "no mask", kernel(NoMask)),
    ("worked-example", "fused kernel", kernel(BrokenFusedKernel)),
    ("worked-example", "other input", lambda patch: patch.setattr(worked_example, "X", [[1, 0, 1, 1]] * 3)),
    ("gradients", "Transformer is an RNN", item(gradients.NETWORKS, gradients.TRANSFORMER, RNN)),
    ("gradients", "RNN is a Transformer", item(gradients.NETWORKS, gradients.RNN, TRANSFORMER)),
    ("gradients", "large RNN is a small one", item(gradients.NETWORKS, gradients.RNN_LARGE, RNN)),
    ("gradients", "LSTM is an RNN", item(gradients.NETWORKS, gradients.LSTM, RNN)),
    ("gradients", "gate not open", item(gradients.NETWORKS, gradients.LSTM_OPEN, gradients.NETWORKS[gradients.LSTM])),
    (
        "averaging",
        "feed-forward",
        item(feed_forward.LAYER_VARIANTS, feed_forward.ATTENTION, feed_forward.LayerParts(True)),
    ),
    ("averaging", "none", item(feed_forward.LAYER_VARIANTS, feed_forward.COMPLETE, feed_forward.LayerParts(False))),
    ("averaging", "not trained", untrained(feed_forward)),
]
SLOW: list[tuple[str, str, Break]] = [
    ("steps", "attention is recurrent", swapped_networks(steps.ATTENTION, steps.RNN)),
    ("steps", "RNN is attention", swapped_networks(steps.RNN, steps.ATTENTION)),
    ("steps", "LSTM is attention", swapped_networks(steps.LSTM, steps.ATTENTION)),
    ("order", "positions", item(order.ENCODER_POSITIONS, order.NONE, SinusoidalPositionsConfig())),
    ("order", "no positions", item(order.ENCODER_POSITIONS, order.SINUSOIDAL, NoPositionsConfig())),
    ("order", "not trained", untrained(order)),
    ("quadratic", "full is a window", attention_kinds(quadratic.FULL, quadratic.WINDOW)),
    ("quadratic", "window is full", attention_kinds(quadratic.WINDOW, quadratic.FULL)),
    ("complexity", "restricted", restricted_everywhere),
    ("complexity", "no recurrence", forgetful_rnn),
    ("complexity", "not dilated", contiguous_convolutions),
    ("distance", "short window", narrow_transformer),
    ("distance", "only Transformers", only_transformers),
    ("scaling", "softmax", scaled_softmax),
    ("scaling", "training", scaled_training),
    ("peeking", "masked", item(peeking.MASK_VARIANTS, peeking.UNMASKED, True)),
    ("peeking", "unmasked", item(peeking.MASK_VARIANTS, peeking.CAUSAL, False)),
    ("depth", "normalized", item(depth.BLOCK_VARIANTS, depth.NO_NORM, depth.BlockVariant())),
    ("depth", "no residuals", item(depth.BLOCK_VARIANTS, depth.POST, depth.BlockVariant(residual=False, norm="none"))),
    (
        "depth",
        "equal surfaces",
        item(depth.SURFACE_VARIANTS, "post-norm, residuals", depth.BlockVariant(residual=False)),
    ),
    ("modern", "no residual connections", item(modern.PARTS, "RMSNorm", {"norm": "rms", "residual": False})),
    ("positions", "no relative positions", item(positions.POSITION_SETTINGS, "relative", {"kind": "none"})),
    ("positions", "no bias", item(positions.POSITION_SETTINGS, "ALiBi", {"kind": "sinusoidal"})),
    ("positions", "no learned positions", unlearned_positions),
]


def names(cases: list[tuple[str, str, Break]]) -> list[str]:
    return [f"{lab}-{what}" for lab, what, _ in cases]


@pytest.mark.slow
@pytest.mark.parametrize(("lab", "what", "broken"), FAST, ids=names(FAST))
def test_broken_network_fails_the_verdict(
    lab: str, what: str, broken: Break, tmp_path: Path, monkeypatch: Patch
) -> None:
    broken(monkeypatch)
    assert not run(lab, tmp_path).holds


@pytest.mark.slow
@pytest.mark.parametrize(("lab", "what", "broken"), SLOW, ids=names(SLOW))
def test_broken_larger_network_fails_the_verdict(
    lab: str, what: str, broken: Break, tmp_path: Path, monkeypatch: Patch
) -> None:
    broken(monkeypatch)
    assert not run(lab, tmp_path).holds


def by_claim(result: LabResult) -> dict[str, bool]:
    return {verdict.claim: verdict.holds for verdict in result.verdicts}


@pytest.mark.slow
def test_parts_of_the_memory_claim_depend_on_the_networks(
    complete: Callable[[str], LabResult], tmp_path: Path, monkeypatch: Patch
) -> None:
    fused, sequential = (
        "it needs less memory than an LSTM to train, with a fused kernel",
        "it needs fewer sequential operations",
    )
    longer = "it is more accurate on sequences longer than those in training, with sinusoidal positions"
    generate = "it needs less memory than an LSTM to generate"
    before = by_claim(complete("memory"))
    assert before[fused]
    assert before[sequential]
    assert not before[longer]
    assert not before[generate]
    original = memory.configs
    networks = original(32)
    swapped = {**networks, memory.LSTM: networks[memory.TRANSFORMER]}
    monkeypatch.setattr(memory, "configs", lambda width: swapped)
    relative = partial(DecoderOnlyConfig, positions=RelativePositionsConfig(max_distance=8))
    monkeypatch.setattr(memory, "DecoderOnlyConfig", relative)
    after = by_claim(run("memory", tmp_path))
    assert not after[fused]
    assert not after[sequential]
    assert after[longer]


@pytest.mark.slow
def test_memory_of_generation_grows_only_in_the_transformer() -> None:
    networks = {name: build(config) for name, config in memory.configs(16).items()}
    kept = {name: [memory.generation_bytes(network, n) for n in (64, 256)] for name, network in networks.items()}
    for name in (memory.RNN, memory.LSTM, memory.GRU):
        assert kept[name][0] == kept[name][1]
    assert kept[memory.TRANSFORMER][1] > 3 * kept[memory.TRANSFORMER][0]
    assert kept[memory.LSTM][0] == 2 * 16 * 4  # hidden and cell state in single precision
