"""Position schemes that are added to embeddings, and properties of those inside attention."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from family import VOCABULARY
from regard.errors import InputError
from regard.models import EncoderOnlyTransformer
from regard.nn import (
    AlibiPositions,
    Block,
    FeedForward,
    FullAttention,
    Layout,
    LearnedPositions,
    MeanPooling,
    Positions,
    PostNorm,
    RelativePositions,
    RotaryPositions,
    SelfAttention,
    SinusoidalPositions,
    Stack,
    TokenEmbedding,
    Tokens,
    make_layout,
    sinusoidal_table,
)
from regard.nn.embedding import embedding_matrix


@given(length=st.integers(1, 30), width=st.integers(1, 17))
def test_sinusoids_equal_the_formula_of_the_paper(length: int, width: int) -> None:
    table = sinusoidal_table(length, width)
    assert table.shape == (length, width)
    for position in range(length):
        for column in range(width):
            angle = position / 10_000 ** (2 * (column // 2) / width)
            expected = math.sin(angle) if column % 2 == 0 else math.cos(angle)
            assert table[position, column].item() == pytest.approx(expected, abs=1e-12)


def test_sinusoids_in_halves_are_the_same_numbers_in_another_order() -> None:
    table = sinusoidal_table(9, 8)
    assert torch.equal(sinusoidal_table(9, 8, halves=True), torch.cat([table[:, 0::2], table[:, 1::2]], dim=1))


def test_sinusoidal_positions_work_for_any_length() -> None:
    positions = SinusoidalPositions(6)
    for length in (3, 70, 500):
        x = torch.zeros(1, length, 6)
        tokens = make_layout(torch.zeros(1, length, dtype=torch.long)).queries
        torch.testing.assert_close(positions.embed(x, tokens)[0], sinusoidal_table(length, 6).float())


def test_the_sinusoidal_table_grows_only_with_the_input() -> None:
    positions = SinusoidalPositions(6)
    tokens = make_layout(torch.zeros(1, 40, dtype=torch.long)).queries
    for dtype in (torch.float32, torch.float64) * 5:
        assert positions.embed(torch.zeros(1, 40, 6, dtype=dtype), tokens).dtype == dtype
    assert len(positions._table) == 80


def test_longer_inputs_than_learned_positions_are_an_error() -> None:
    positions = LearnedPositions(length=4, width=6)
    assert positions.embed(torch.zeros(1, 4, 6), make_layout(torch.zeros(1, 4).long()).queries).shape == (1, 4, 6)
    with pytest.raises(InputError) as error:
        positions.embed(torch.zeros(1, 5, 6), make_layout(torch.zeros(1, 5).long()).queries)
    assert str(error.value) == (
        "The input is 5 tokens long, but this network learned 4 positions: "
        "shorten the input, or train with model.positions.max_length = 5."
    )


def test_padding_is_not_counted_in_positions() -> None:
    mask = torch.tensor([[False, True, True, False], [True, False, False, True]])
    assert make_layout(torch.zeros(2, 4).long(), mask).queries.position_ids.tolist() == [[0, 0, 1, 1], [0, 0, 0, 1]]


class DepthPositions(Positions):
    """Adds a vector for a feature of each token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, width, dtype=torch.float64))

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        return x + self.table[tokens.features["depth"]]


def stack_with(positions: Positions, causal: bool = True) -> Stack:
    torch.manual_seed(0)
    embedding = TokenEmbedding(embedding_matrix(VOCABULARY, 16), positions)
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


@pytest.mark.parametrize("scheme", [RotaryPositions(), AlibiPositions(), RelativePositions(2)])
def test_schemes_inside_attention_depend_on_distances_only(scheme: Positions) -> None:
    layer = stack_with(scheme, causal=False).layers[0]
    x = torch.randn(1, 4, 16, dtype=torch.float64)
    layout = make_layout(torch.zeros(1, 4).long())
    later = Tokens(layout.queries.position_ids + 5)
    torch.testing.assert_close(layer(x, Layout(later, later, layout.mask)), layer(x, layout))
    swapped = torch.tensor([1, 0, 2, 3])  # a reversal would keep every distance
    assert (layer(x, layout)[:, swapped] - layer(x[:, swapped], layout)).abs().max() > 1e-2


@pytest.mark.parametrize("mask", [None, torch.tensor([[True, True, False]])])
def test_token_features_reach_the_scheme(mask: Tensor | None) -> None:
    stack = stack_with(DepthPositions(16), causal=False)
    network = EncoderOnlyTransformer(stack, MeanPooling())
    ids = torch.tensor([[1, 2, 3]])
    flat, deep = torch.zeros_like(ids), torch.tensor([[0, 1, 2]])
    shallow, parsed = (network.encode(ids, mask, {"depth": depth}).states for depth in (flat, deep))
    assert (shallow - parsed).abs().max() > 1e-2
    assert torch.equal(network(ids, mask, {"depth": deep}), network.pool(network.encode(ids, mask, {"depth": deep})))
