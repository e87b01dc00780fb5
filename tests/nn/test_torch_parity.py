"""With copied weights, blocks equal PyTorch's Transformer layers."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.nn import (
    Block,
    CrossAttention,
    FeedForward,
    FullAttention,
    Positions,
    PostNorm,
    PreNorm,
    Residual,
    SelfAttention,
    make_layout,
)

WIDTH, HEADS, HIDDEN = 16, 4, 24
ACTIVATIONS: dict[str, nn.Module] = {"relu": nn.ReLU(), "gelu": nn.GELU()}
ORDERS: dict[bool, type[Residual]] = {False: PostNorm, True: PreNorm}


def block(pre_norm: bool, activation: str, cross: bool) -> Block:
    kernel: Callable[[], FullAttention] = lambda: FullAttention((WIDTH // HEADS) ** -0.5)  # noqa: E731
    return Block(
        SelfAttention(WIDTH, HEADS, kernel(), Positions(), bias=True),
        CrossAttention(WIDTH, HEADS, kernel(), bias=True) if cross else None,
        FeedForward(WIDTH, HIDDEN, ACTIVATIONS[activation]),
        lambda: ORDERS[pre_norm](nn.LayerNorm(WIDTH), dropout=0.0),
    ).eval()


def perturb(layer: nn.Module) -> None:
    """Move every parameter away from initial zeros and ones."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))


def copy_norms_and_feed_forward(theirs: nn.Module, norms: dict[str, str], linears: dict[str, str]) -> dict[str, Tensor]:
    state = theirs.state_dict()
    return {
        f"{ours}.{kind}": state[f"{their_name}.{kind}"]
        for ours, their_name in (norms | linears).items()
        for kind in ("weight", "bias")
    }


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("pre_norm", ORDERS)
@given(seed=st.integers(0, 2**31), lengths=st.lists(st.integers(1, 7), min_size=1, max_size=4))
def test_encoder_layer_equals_torch(pre_norm: bool, activation: str, seed: int, lengths: list[int]) -> None:
    torch.manual_seed(seed)
    theirs = nn.TransformerEncoderLayer(
        WIDTH, HEADS, HIDDEN, dropout=0.0, activation=activation, batch_first=True, norm_first=pre_norm
    )
    theirs.train()  # their evaluation path uses another kernel, with zeros at padding
    perturb(theirs)
    ours = block(pre_norm, activation, cross=False)
    state = theirs.state_dict()
    ours.load_state_dict(
        {
            "attention.query_key_value.weight": state["self_attn.in_proj_weight"],
            "attention.query_key_value.bias": state["self_attn.in_proj_bias"],
            "attention.output.weight": state["self_attn.out_proj.weight"],
            "attention.output.bias": state["self_attn.out_proj.bias"],
            **copy_norms_and_feed_forward(
                theirs,
                {"attention_residual.norm": "norm1", "feed_forward_residual.norm": "norm2"},
                {"feed_forward.inner": "linear1", "feed_forward.output": "linear2"},
            ),
        }
    )
    longest = max(lengths)
    x = torch.randn(len(lengths), longest, WIDTH)
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    layout = make_layout(mask.long(), mask, pack=False)
    expected = theirs(x, src_key_padding_mask=~mask)
    torch.testing.assert_close(ours(x, layout)[mask], expected[mask], atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("pre_norm", ORDERS)
@given(
    seed=st.integers(0, 2**31),
    lengths=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4),
)
def test_decoder_layer_equals_torch(pre_norm: bool, activation: str, seed: int, lengths: list[tuple[int, int]]) -> None:
    torch.manual_seed(seed)
    theirs = nn.TransformerDecoderLayer(
        WIDTH, HEADS, HIDDEN, dropout=0.0, activation=activation, batch_first=True, norm_first=pre_norm
    )
    perturb(theirs)
    ours = block(pre_norm, activation, cross=True)
    state = theirs.state_dict()
    cross_weight, cross_bias = state["multihead_attn.in_proj_weight"], state["multihead_attn.in_proj_bias"]
    ours.load_state_dict(
        {
            "attention.query_key_value.weight": state["self_attn.in_proj_weight"],
            "attention.query_key_value.bias": state["self_attn.in_proj_bias"],
            "attention.output.weight": state["self_attn.out_proj.weight"],
            "attention.output.bias": state["self_attn.out_proj.bias"],
            "cross_attention.query.weight": cross_weight[:WIDTH],
            "cross_attention.query.bias": cross_bias[:WIDTH],
            "cross_attention.key_value.weight": cross_weight[WIDTH:],
            "cross_attention.key_value.bias": cross_bias[WIDTH:],
            "cross_attention.output.weight": state["multihead_attn.out_proj.weight"],
            "cross_attention.output.bias": state["multihead_attn.out_proj.bias"],
            **copy_norms_and_feed_forward(
                theirs,
                {
                    "attention_residual.norm": "norm1",
                    "cross_attention_residual.norm": "norm2",
                    "feed_forward_residual.norm": "norm3",
                },
                {"feed_forward.inner": "linear1", "feed_forward.output": "linear2"},
            ),
        }
    )
    source_lengths, target_lengths = torch.tensor(lengths).T
    source_mask = torch.arange(int(source_lengths.max())) < source_lengths[:, None]
    target_mask = torch.arange(int(target_lengths.max())) < target_lengths[:, None]
    memory, x = torch.randn(*source_mask.shape, WIDTH), torch.randn(*target_mask.shape, WIDTH)
    layout = make_layout(target_mask.long(), target_mask, causal=True, pack=False)
    ahead = torch.ones(x.size(1), x.size(1)).triu(1).bool()
    expected = theirs(
        x, memory, tgt_mask=ahead, tgt_key_padding_mask=~target_mask, memory_key_padding_mask=~source_mask
    )
    actual = ours(x, layout, memory, layout.cross(memory, source_mask, pack=False))
    torch.testing.assert_close(actual[target_mask], expected[target_mask], atol=1e-5, rtol=0)
