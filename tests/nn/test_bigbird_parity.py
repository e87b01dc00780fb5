"""BigBird equals the one in transformers, with copied weights and our plan of random blocks.

transformers draws a plan in training; in evaluation, each block attends several times to the first block, which is not
a pattern. Its blocks begin at the padded row, ours at the text, so both agree if only the last block has padding. It
supports a window of three blocks and one global block at each end.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import BigBirdConfig, BigBirdModel
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

from regard.config import BigBirdAttentionConfig, EncoderOnlyConfig, LearnedPositionsConfig
from regard.interop.bert import bert_mappings
from regard.interop.hf_spec import to_regard
from regard.models import build
from regard.nn import BigBirdAttention, Positions, SelfAttention, make_layout
from regard.nn.bigbird import BigBirdPattern, block_plan

WIDTH, HEADS, ROWS = 24, 3, 2
TOLERANCE = 1e-9


def use_our_plan(theirs: BigBirdBlockSparseAttention, pattern: BigBirdPattern, blocks: int) -> None:
    """Replace the random blocks of a transformers layer by ours."""
    middle = range(1, blocks - 1)
    near_and_global = {block: {0, block - 1, block, block + 1, blocks - 1} for block in middle}
    plan = [sorted({*block_plan(pattern, blocks)[block]} - near_and_global[block]) for block in middle]
    assert {len(row) for row in plan} == {pattern.random}
    random_blocks = np.array(plan)
    theirs._bigbird_block_rand_mask = lambda *_, **__: random_blocks
    theirs._bigbird_block_rand_mask_with_head = lambda *_, **__: [random_blocks] * HEADS


def their_config(block: int, random: int, longest: int) -> BigBirdConfig:
    sizes: dict[str, Any] = {"hidden_size": WIDTH, "num_hidden_layers": 2, "intermediate_size": 40, "vocab_size": 30}
    return BigBirdConfig(
        **sizes,
        num_attention_heads=HEADS,
        block_size=block,
        num_random_blocks=random,
        hidden_act="gelu",
        attention_type="block_sparse",
        max_position_embeddings=longest,
        attention_probs_dropout_prob=0.0,
        hidden_dropout_prob=0.0,
    )


def gradients(out: Tensor, mask: Tensor, weights: list[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(out[mask].sin().sum(), weights))


@pytest.mark.parametrize(
    ("block", "blocks", "random", "pads"),
    [
        (1, 7, 1, 0),
        (2, 8, 2, 0),
        (2, 8, 2, 1),
        (3, 9, 3, 2),
        (4, 20, 3, 1),
        (16, 30, 2, 15),
        (64, 16, 3, 0),  # for 1,024 tokens transformers has a special plan
        (64, 16, 3, 40),
    ],
)
def test_a_layer_equals_transformers(block: int, blocks: int, random: int, pads: int) -> None:
    torch.manual_seed(0)
    length, pattern = block * blocks, BigBirdPattern(window=3, globals=2, random=random, seed=5)
    theirs = BigBirdBlockSparseAttention(their_config(block, random, length)).double()
    use_our_plan(theirs, pattern, blocks)
    dense = nn.Linear(WIDTH, WIDTH).double()
    kernel = BigBirdAttention(1 / math.sqrt(WIDTH // HEADS), block, pattern)
    ours = SelfAttention(WIDTH, HEADS, kernel, Positions(), bias=True).double()
    parts = [theirs.query, theirs.key, theirs.value]
    with torch.no_grad():
        ours.query_key_value.weight.copy_(torch.cat([part.weight for part in parts]))
        ours.query_key_value.bias.copy_(torch.cat([part.bias for part in parts]))
        ours.output.load_state_dict(dense.state_dict())
    x = torch.randn(ROWS, length, WIDTH).double().requires_grad_()
    mask = torch.arange(length) < torch.tensor([[length - pads], [length]])
    blocked, band, of_queries, of_keys = BigBirdModel.create_masks_for_block_sparse_attn(mask.double(), block)
    attended, _ = theirs(x, band, of_queries, of_keys, blocked, blocked)
    expected, out = dense(attended), ours(x, make_layout(torch.zeros(ROWS, length), mask, pack=False))
    torch.testing.assert_close(out[mask], expected[mask], atol=TOLERANCE, rtol=0)
    expected_gradient = torch.cat([*gradients(expected, mask, [part.weight for part in parts])])
    (gradient,) = gradients(out, mask, [ours.query_key_value.weight])
    torch.testing.assert_close(gradient, expected_gradient, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("length", [39, 40, 64])
def test_a_network_equals_transformers(length: int) -> None:
    torch.manual_seed(0)
    block, random, seed = 4, 2, 11
    theirs = BigBirdModel(their_config(block, random, 64)).double().eval()
    blocks = -(-length // block)
    for layer in theirs.encoder.layer:
        use_our_plan(layer.attention.self, BigBirdPattern(3, 2, random, seed), blocks)
    config = EncoderOnlyConfig(
        vocab_size=30,
        width=WIDTH,
        layers=2,
        heads=HEADS,
        feed_forward=40,
        activation="gelu",
        norm_epsilon=theirs.config.layer_norm_eps,
        embedding_norm=True,
        positions=LearnedPositionsConfig(max_length=64),
        attention=BigBirdAttentionConfig(block_size=block, random_blocks=random, seed=seed),
        attention_bias=True,
        scale_embeddings=False,
        segments=2,
        pooling="first-dense",
    )
    ours = build(config).double().eval()
    named = {f"bert.{name}".replace("pooler.", "pooler.dense."): x for name, x in theirs.state_dict().items()}
    ours.load_state_dict(to_regard(bert_mappings(config), named))
    ids = torch.randint(0, 30, (ROWS, length))
    with torch.no_grad():
        expected = theirs(ids)
        torch.testing.assert_close(ours.encode(ids).states, expected.last_hidden_state, atol=TOLERANCE, rtol=0)
        torch.testing.assert_close(ours(ids), expected.pooler_output, atol=TOLERANCE, rtol=0)
