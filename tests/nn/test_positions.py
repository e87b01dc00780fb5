"""Positions, and whether their hooks are enough for schemes that are not built yet."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from family import TOLERANCE, VOCABULARY, Batch, batches
from regard.errors import InputError
from regard.models import EncoderOnlyTransformer
from regard.nn import (
    Block,
    DecoderCache,
    Embedding,
    FeedForward,
    FullAttention,
    Layout,
    LearnedPositions,
    MeanPooling,
    Positions,
    PostNorm,
    SelfAttention,
    SinusoidalPositions,
    Stack,
    Tokens,
    lay_out,
    sinusoids,
)
from regard.nn.embedding import token_table


@given(length=st.integers(1, 30), width=st.integers(1, 17))
def test_sinusoids_are_the_formula_of_the_paper(length: int, width: int) -> None:
    table = sinusoids(length, width)
    assert table.shape == (length, width)
    for position in range(length):
        for column in range(width):
            angle = position / 10_000 ** (2 * (column // 2) / width)
            expected = math.sin(angle) if column % 2 == 0 else math.cos(angle)
            assert table[position, column].item() == pytest.approx(expected, abs=1e-12)


def test_sinusoids_in_halves_are_the_same_numbers_in_another_order() -> None:
    table = sinusoids(9, 8)
    assert torch.equal(sinusoids(9, 8, halves=True), torch.cat([table[:, 0::2], table[:, 1::2]], dim=1))


def test_sinusoidal_positions_have_no_last_one() -> None:
    positions = SinusoidalPositions(6)
    for length in (3, 70, 500):
        x = torch.zeros(1, length, 6)
        tokens = lay_out(torch.zeros(1, length, dtype=torch.long)).queries
        torch.testing.assert_close(positions.embed(x, tokens)[0], sinusoids(length, 6).float())


def test_the_table_of_sinusoids_grows_only_with_the_input() -> None:
    positions = SinusoidalPositions(6)
    tokens = lay_out(torch.zeros(1, 40, dtype=torch.long)).queries
    for dtype in (torch.float32, torch.float64) * 5:
        assert positions.embed(torch.zeros(1, 40, 6, dtype=dtype), tokens).dtype == dtype
    assert len(positions._table) == 80


def test_learned_positions_say_where_they_end() -> None:
    positions = LearnedPositions(length=4, width=6)
    assert positions.embed(torch.zeros(1, 4, 6), lay_out(torch.zeros(1, 4).long()).queries).shape == (1, 4, 6)
    with pytest.raises(InputError) as error:
        positions.embed(torch.zeros(1, 5, 6), lay_out(torch.zeros(1, 5).long()).queries)
    assert str(error.value) == (
        "The input is 5 tokens long, but this network learned 4 positions: "
        "shorten the input, or train with model.positions.length = 5."
    )


def test_pads_are_not_counted_as_positions() -> None:
    real = torch.tensor([[False, True, True, False], [True, False, False, True]])
    assert lay_out(torch.zeros(2, 4).long(), real).queries.index.tolist() == [[0, 0, 1, 1], [0, 0, 0, 1]]


# Schemes in the small, one for each hook that nothing in the package uses yet. If a network with one of them decodes
# with a cache as it does without, and a batch like its rows, the hooks are enough: blocks and stacks need no change.


class Rotary(Positions):
    """Pairs of entries of queries and keys turn by an angle proportional to their position."""

    def for_layer(self, heads: int, key_width: int, value_width: int, scale: float) -> Positions:
        return Rotary()

    def rotate(self, x: Tensor, tokens: Tokens) -> Tensor:
        angle = tokens.index[..., None] * 100.0 ** (-torch.arange(0, x.size(-1), 2) / x.size(-1))  # (B, T, D/2)
        angle = angle[:, None]  # the same in all heads
        a, b = x[..., 0::2], x[..., 1::2]
        turned = [a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()]
        return torch.stack(turned, dim=-1).flatten(-2)


class Alibi(Positions):
    """Every head takes from a score in proportion to the distance."""

    def __init__(self, heads: int = 1) -> None:
        super().__init__()
        self.slopes = 2.0 ** -torch.arange(1, heads + 1)

    def for_layer(self, heads: int, key_width: int, value_width: int, scale: float) -> Positions:
        return Alibi(heads)

    def bias(self, q: Tensor, layout: Layout) -> Tensor:
        return -self.slopes[:, None, None] * layout.distance.abs()


class Relative(Positions):
    """Learned vectors for clipped distances, met by queries and added to values (Shaw et al. 2018)."""

    mixes = True

    def __init__(self, key_width: int = 1, value_width: int = 1, scale: float = 1.0, clip: int = 2) -> None:
        super().__init__()
        self.scale, self.clip = scale, clip
        self.key_table = nn.Parameter(torch.randn(2 * clip + 1, key_width, dtype=torch.float64))
        self.value_table = nn.Parameter(torch.randn(2 * clip + 1, value_width, dtype=torch.float64))

    def for_layer(self, heads: int, key_width: int, value_width: int, scale: float) -> Positions:
        return Relative(key_width, value_width, scale)

    def _steps(self, layout: Layout) -> Tensor:
        return layout.distance.clamp(-self.clip, self.clip) + self.clip

    def bias(self, q: Tensor, layout: Layout) -> Tensor:
        return (q[..., None, :] * self.key_table[self._steps(layout)]).sum(-1) * self.scale

    def mix(self, weights: Tensor, layout: Layout) -> Tensor:
        return (weights[..., None] * self.value_table[self._steps(layout)]).sum(-2)


class Depth(Positions):
    """Adds a vector for a fact about each token that the network was given, such as its depth in a parse."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, width, dtype=torch.float64))

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        return x + self.table[tokens.facts["depth"]]


def stack_with(positions: Positions, causal: bool = True) -> Stack:
    torch.manual_seed(0)
    embedding = Embedding(token_table(VOCABULARY, 16), positions)
    layers = [
        Block(
            SelfAttention(16, 4, FullAttention(0.5), positions),
            None,
            FeedForward(16, 32),
            lambda: PostNorm(nn.LayerNorm(16), 0.0),
        )
        for _ in range(2)
    ]
    return Stack(embedding, layers, causal=causal).double().eval()


@pytest.mark.parametrize("scheme", [Rotary, Alibi, Relative])
@given(batch=batches(), data=st.data())
def test_the_hooks_hold_schemes_to_come(scheme: type[Positions], batch: Batch, data: st.DataObject) -> None:
    stack = stack_with(scheme())
    whole = stack(batch.target, batch.target_real)
    for i in range(len(batch.target)):
        alone = stack(batch.row(i).target)
        torch.testing.assert_close(whole[i][batch.target_real[i]], alone[0], atol=TOLERANCE, rtol=0)
    cut = data.draw(st.integers(0, batch.target.size(1) - 1))
    cache = DecoderCache(2)
    pieces = [
        stack(batch.target[:, piece], batch.target_real[:, piece], cache=cache)
        for piece in (slice(0, cut), slice(cut, None))
        if batch.target[:, piece].size(1)
    ]
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("scheme", [Rotary, Alibi, Relative])
def test_schemes_to_come_know_distances_and_nothing_else(scheme: type[Positions]) -> None:
    layer = stack_with(scheme(), causal=False).layers[0]
    x = torch.randn(1, 4, 16, dtype=torch.float64)
    layout = lay_out(torch.zeros(1, 4).long())
    later = Tokens(layout.queries.index + 5)
    torch.testing.assert_close(layer(x, Layout(later, later, layout.mask)), layer(x, layout))
    swapped = torch.tensor([1, 0, 2, 3])  # a reversal would keep every distance
    assert (layer(x, layout)[:, swapped] - layer(x[:, swapped], layout)).abs().max() > 1e-2


@pytest.mark.parametrize("real", [None, torch.tensor([[True, True, False]])])
def test_facts_about_tokens_reach_the_scheme(real: Tensor | None) -> None:
    stack = stack_with(Depth(16), causal=False)
    network = EncoderOnlyTransformer(stack, MeanPooling())
    ids = torch.tensor([[1, 2, 3]])
    flat, deep = torch.zeros_like(ids), torch.tensor([[0, 1, 2]])
    shallow, parsed = (network.encode(ids, real, {"depth": depth}).states for depth in (flat, deep))
    assert (shallow - parsed).abs().max() > 1e-2
    assert torch.equal(network(ids, real, {"depth": deep}), network.pool(network.encode(ids, real, {"depth": deep})))
