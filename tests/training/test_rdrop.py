"""R-Drop: the loss equals the formula, in chunks of any size and for every objective."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from commands import regard as command_line
from regard.config import (
    BidirectionalLanguageModelConfig,
    ClassHeadConfig,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    EncoderOnlyConfig,
    ModelConfig,
    TokenHeadConfig,
)
from regard.errors import RunError
from regard.models import build
from regard.nn.cpu import losses as cpu_losses
from regard.nn.embedding import OutputProjection
from regard.nn.functional import autocast
from regard.nn.taps import open_taps
from regard.training.batches import Batch, BidirectionalBatch, LabelBatch, MaskedBatch, TokenBatch
from regard.training.losses import (
    BidirectionalLMObjective,
    CausalLMObjective,
    LabelObjective,
    MaskedLMObjective,
    Objective,
    RDrop,
    projected_rdrop,
    rdrop_cross_entropy,
    smoothed_cross_entropy,
    symmetric_kl,
)
from small_runs import numbers, run, write_pairs

SHAPE: dict[str, Any] = {"vocab_size": 20, "width": 16, "layers": 1, "heads": 2, "feed_forward": 16, "dropout": 0.3}


def kl(p: Tensor, q: Tensor) -> Tensor:
    return (p * (p / q).log()).sum()


@given(seed=st.integers(0, 2**31), rows=st.integers(1, 6), size=st.integers(2, 9), weight=st.floats(0, 5))
def test_the_loss_is_half_of_that_in_the_paper(seed: int, rows: int, size: int, weight: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    first, second = torch.randn(2, rows, size, dtype=torch.float64, generator=generator)
    targets = torch.randint(0, size, (rows,), generator=generator)
    p, q = first.softmax(-1), second.softmax(-1)
    right = torch.arange(rows), targets
    paper = -p[right].log().sum() - q[right].log().sum() + weight * (kl(p, q) + kl(q, p)) / 2
    loss = rdrop_cross_entropy(first, second, targets, 0.0, weight)
    torch.testing.assert_close(loss.loss, paper / 2)
    torch.testing.assert_close(loss.cross_entropy, -(p[right].log().sum() + q[right].log().sum()) / 2)
    assert loss.targets == rows


def test_equal_passes_have_the_loss_of_one_pass() -> None:
    logits, targets = torch.randn(5, 7, dtype=torch.float64), torch.randint(0, 7, (5,))
    loss = rdrop_cross_entropy(logits, logits, targets, 0.1, weight=3.0)
    torch.testing.assert_close(loss.loss, smoothed_cross_entropy(logits, targets, 0.1).loss)
    assert symmetric_kl(logits, logits + 1.0) < 1e-12 < symmetric_kl(logits, -logits)


def random_mask(rows: int, length: int) -> Tensor:
    return torch.arange(length) < torch.randint(1, length + 1, (rows, 1))


def translation() -> tuple[Objective[Any], Batch]:
    network = build(EncoderDecoderConfig(**SHAPE))
    source, target = torch.randint(4, 20, (2, 6, 9))
    batch = TokenBatch(target, target.roll(-1, 1), random_mask(6, 9), source, random_mask(6, 9))
    return CausalLMObjective(network, 0.1), batch


def language_model() -> tuple[Objective[Any], Batch]:
    target = torch.randint(4, 20, (6, 9))
    return CausalLMObjective(build(DecoderOnlyConfig(**SHAPE)), 0.0), TokenBatch(target, target.roll(-1, 1))


def bidirectional() -> tuple[Objective[Any], Batch]:
    model = BidirectionalLanguageModelConfig(vocab_size=20, width=16, dropout=0.3)
    target = torch.randint(4, 20, (6, 9))
    objective = BidirectionalLMObjective(build(model), 0.1)  # type: ignore[arg-type]
    return objective, BidirectionalBatch(target, target.roll(-1, 1), random_mask(6, 9))


def encoder(model: ModelConfig) -> Any:
    return build(model)


def masked() -> tuple[Objective[Any], Batch]:
    ids, mask = torch.randint(4, 20, (6, 9)), random_mask(6, 9)
    selected = mask & (torch.rand(6, 9) < 0.5)
    return MaskedLMObjective(encoder(EncoderOnlyConfig(**SHAPE, head=TokenHeadConfig())), 0.1), MaskedBatch(
        ids, ids, selected, mask
    )


def classes() -> tuple[Objective[Any], Batch]:
    network = encoder(EncoderOnlyConfig(**SHAPE, head=ClassHeadConfig(labels=("a", "b", "c"))))
    batch = LabelBatch(torch.randint(4, 20, (6, 9)), random_mask(6, 9), torch.randint(0, 3, (6, 1)))
    return LabelObjective(network, 0.1, per_word=False), batch


OBJECTIVES = [translation, language_model, bidirectional, masked, classes]
Make = Callable[[], tuple[Objective[Any], Batch]]


@pytest.mark.parametrize("make", OBJECTIVES)
def test_without_dropout_two_passes_equal_one(make: Make) -> None:
    torch.manual_seed(0)
    objective, batch = make()
    objective.eval()
    once, twice = objective(batch), RDrop(objective, 2.0).eval()(batch)
    torch.testing.assert_close(twice.loss, once.loss)
    torch.testing.assert_close(twice.cross_entropy, once.cross_entropy)
    assert twice.targets == once.targets == batch.targets


@pytest.mark.parametrize("make", OBJECTIVES)
def test_with_dropout_the_divergence_is_added(make: Make) -> None:
    torch.manual_seed(0)
    objective, batch = make()
    losses = []
    with torch.no_grad():
        for weight in (0.0, 2.0):
            torch.manual_seed(1)
            losses.append(float(RDrop(objective, weight).train()(batch).loss))
        torch.manual_seed(1)
        states, _ = objective.train().states(batch.repeated())
        logits = objective.network.logits(states).flatten(0, -2)
        divergence = float(symmetric_kl(*logits.chunk(2)))
    assert divergence > 0.01
    if make is not classes:  # its head has dropout too, in another order
        assert losses[1] - losses[0] == pytest.approx(divergence, rel=1e-3)
    assert losses[1] > losses[0] + 0.01


@settings(deadline=None)
@given(
    seed=st.integers(0, 1000),
    rows=st.integers(0, 20),
    vocabulary=st.integers(2, 9),
    smoothing=st.sampled_from([0.0, 0.1, 0.5]),
    bias=st.booleans(),
    chunk=st.integers(1, 100),
)
def test_chunks_of_any_size_give_the_loss_and_gradients_of_the_formula(
    seed: int, rows: int, vocabulary: int, smoothing: float, bias: bool, chunk: int
) -> None:
    torch.manual_seed(seed)
    output = OutputProjection(nn.Parameter(torch.randn(vocabulary, 5)), bias).double()
    if output.bias is not None:
        nn.init.normal_(output.bias)
    first, second = (torch.randn(rows, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    targets = torch.randint(0, vocabulary, (rows,))
    expected = rdrop_cross_entropy(output(first), output(second), targets, smoothing, 3.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_losses, "RDROP_CHUNK_LOGITS", chunk)
        loss = projected_rdrop(first, second, output, targets, smoothing, 3.0)
    torch.testing.assert_close(loss.loss, expected.loss)
    torch.testing.assert_close(loss.cross_entropy, expected.cross_entropy)
    assert loss.targets == expected.targets
    inputs = [first, second, *output.parameters()]
    actual, reference = (torch.autograd.grad(each.loss * 0.25, inputs) for each in (loss, expected))
    torch.testing.assert_close(actual, reference)


def test_bfloat16_gradients_are_close_and_open_taps_see_all_logits() -> None:
    torch.manual_seed(0)
    output, targets = OutputProjection(nn.Parameter(torch.randn(9, 5))), torch.randint(0, 9, (6,))
    states = torch.randn(2, 6, 5, requires_grad=True)
    gradients = []
    for dtype in (torch.float32, torch.bfloat16):
        with autocast(dtype, torch.device("cpu")):
            loss = projected_rdrop(states[0], states[1], output, targets, 0.1, 2.0)
        gradients.append(torch.autograd.grad(loss.loss, states)[0])
    assert gradients[1].dtype == torch.float32
    assert float((gradients[0] - gradients[1]).norm() / gradients[0].norm()) < 0.03
    with open_taps(output) as tensors, torch.no_grad():
        projected_rdrop(states[0], states[1], output, targets, 0.1, 2.0)
    assert tensors["logits"].shape == (6, 9)


def test_a_shard_without_targets_has_zero_gradients() -> None:
    torch.manual_seed(0)
    objective, batch = masked()
    assert isinstance(batch, MaskedBatch)
    empty = MaskedBatch(batch.ids, batch.original, torch.zeros_like(batch.selected), batch.mask)
    loss = RDrop(objective, 1.0)(empty)
    loss.loss.backward()
    assert loss.targets == 0
    assert all(not p.grad.any() for p in objective.parameters() if p.grad is not None)


@pytest.mark.slow
def test_a_run_with_rdrop_learns_and_a_resumed_run_is_equal(tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.tsv")
    settings_ = ["training.rdrop=5", "model.dropout=0.2", "validation.every=20"]
    whole = run(tmp_path / "whole", data, *settings_, "training.steps=40")
    run(tmp_path / "part", data, *settings_, "training.steps=20")
    part = run(tmp_path / "part", data, *settings_, "training.steps=40", resume=True)
    assert numbers(whole) == numbers(part)
    without = run(tmp_path / "without", data, *settings_[1:], "training.steps=40")
    losses = [[line["loss"] for line in numbers(out) if "loss" in line] for out in (whole, without)]
    assert losses[0][0] > losses[1][0]  # at first the passes disagree, which is added to the loss
    assert losses[0][-1] < losses[0][0] / 1.3


def test_the_divergence_message_names_rdrop(tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.tsv")
    with pytest.raises(RunError, match=r"lower training.schedule.learning_rate or training.rdrop, increase"):
        run(tmp_path / "run", data, "training.rdrop=1e30")


def test_rdrop_without_dropout_is_an_error(tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.tsv")
    chosen = ["--set", "training.rdrop=1", "--set", "model.dropout=0"]
    done = command_line("train", "translation", "--data", str(data), "--out", str(tmp_path / "run"), *chosen)
    assert done.code == 2
    assert "training.rdrop = 1 compares two passes that differ by dropout, but there is none" in done.err
    assert "set model.dropout above 0" in done.err
