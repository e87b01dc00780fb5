"""Small networks of every kind, and random batches for them, for property tests.

In float64 two ways to compute the same number differ by about 1e-15 at a width of 16, so a tolerance of 1e-9 accepts
rounding and nothing else.
"""

import random
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from regard.config import (
    AlibiPositionsConfig,
    BidirectionalLanguageModelConfig,
    BigBirdAttentionConfig,
    BucketPositionsConfig,
    ClassHeadConfig,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    EncoderOnlyConfig,
    LearnedPositionsConfig,
    LinformerAttentionConfig,
    ModelConfig,
    NoPositionsConfig,
    RecurrentEncoderDecoderConfig,
    RecurrentLanguageModelConfig,
    RelativePositionsConfig,
    RotaryPositionsConfig,
    SinusoidalPositionsConfig,
    SyntaxPositionsConfig,
    TagHeadConfig,
    TokenHeadConfig,
    TransformerConfig,
    WindowAttentionConfig,
    YarnScalingConfig,
)
from regard.data.syntax import SYNTAX_FEATURES, tree_positions
from regard.models import Network, build
from toy_trees import random_heads

VOCABULARY = 23
TOLERANCE = 1e-9
_SMALL: dict[str, Any] = {"vocab_size": VOCABULARY, "width": 16, "layers": 2, "heads": 4, "feed_forward": 24}
_MODERN: dict[str, Any] = {"norm": "rms", "norm_order": "pre", "activation": "swiglu"}
_LEARNED: dict[str, Any] = {
    "positions": LearnedPositionsConfig(max_length=40),
    "norm_order": "pre",
    "activation": "gelu",
}

_BIGBIRD = BigBirdAttentionConfig(block_size=1, window_blocks=1, global_blocks=1, random_blocks=1)

_RECURRENT: dict[str, Any] = {"vocab_size": VOCABULARY, "width": 16, "layers": 2}

RECURRENT: dict[str, ModelConfig] = {
    "recurrent encoder-decoder, bottleneck": RecurrentEncoderDecoderConfig(
        **_RECURRENT, cell="rnn", bidirectional=False, attention="none"
    ),
    "recurrent encoder-decoder, Bahdanau": RecurrentEncoderDecoderConfig(**_RECURRENT, cell="gru"),
    "recurrent encoder-decoder, Bahdanau, LSTM, deeper decoder": RecurrentEncoderDecoderConfig(
        **{**_RECURRENT, "layers": 1}, decoder_layers=3, cell="lstm"
    ),
    "recurrent encoder-decoder, additive after, shallow decoder": RecurrentEncoderDecoderConfig(
        **_RECURRENT, decoder_layers=1, cell="gru", attention_order="after"
    ),
    "recurrent encoder-decoder, general before, vanilla": RecurrentEncoderDecoderConfig(
        **_RECURRENT, cell="rnn", attention="general", attention_order="before"
    ),
    "recurrent encoder-decoder, dot": RecurrentEncoderDecoderConfig(**_RECURRENT, cell="lstm", attention="dot"),
    "recurrent encoder-decoder, general, untied": RecurrentEncoderDecoderConfig(
        **_RECURRENT,
        cell="lstm",
        bidirectional=False,
        attention="general",
        share_embeddings=False,
        target_vocab_size=VOCABULARY + 4,
        tie_output=False,
        output_bias=True,
    ),
    "recurrent language model, vanilla": RecurrentLanguageModelConfig(**_RECURRENT, cell="rnn"),
    "recurrent language model, LSTM": RecurrentLanguageModelConfig(**_RECURRENT, cell="lstm"),
    "recurrent language model, GRU": RecurrentLanguageModelConfig(**_RECURRENT, cell="gru"),
}
DECODERS: dict[str, ModelConfig] = {
    "encoder-decoder": EncoderDecoderConfig(**_SMALL),
    "encoder-decoder, pre-norm, RMS, SwiGLU": EncoderDecoderConfig(**_SMALL, **_MODERN, decoder_layers=1),
    "encoder-decoder, narrow keys, biases, untied": EncoderDecoderConfig(
        **_SMALL,
        key_width=3,
        attention_bias=True,
        share_embeddings=False,
        target_vocab_size=VOCABULARY + 4,
        tie_output=False,
        output_bias=True,
    ),
    "decoder-only": DecoderOnlyConfig(**_SMALL, activation="gelu-tanh"),
    "decoder-only, learned positions": DecoderOnlyConfig(**_SMALL, **_LEARNED, scale_embeddings=False),
    "decoder-only, no feed-forward": DecoderOnlyConfig(**{**_SMALL, "feed_forward": 0}, positions=NoPositionsConfig()),
    "encoder-decoder, concatenated sinusoids": EncoderDecoderConfig(
        **_SMALL, positions=SinusoidalPositionsConfig(combine="concatenate", width=5), tie_output=False
    ),
    "decoder-only, concatenated learned positions": DecoderOnlyConfig(
        **_SMALL, positions=LearnedPositionsConfig(max_length=40, combine="concatenate"), tie_output=False
    ),
    "encoder-decoder, norms without gain and bias": EncoderDecoderConfig(**_SMALL, norm_affine=False),
    "decoder-only, RMS norms without gain": DecoderOnlyConfig(**_SMALL, **_MODERN, norm_affine=False),
    "encoder-decoder, rotary": EncoderDecoderConfig(**_SMALL, positions=RotaryPositionsConfig()),
    "encoder-decoder, ALiBi": EncoderDecoderConfig(**_SMALL, positions=AlibiPositionsConfig()),
    "encoder-decoder, relative": EncoderDecoderConfig(
        **_SMALL, positions=RelativePositionsConfig(max_distance=2), key_width=3
    ),
    "encoder-decoder, syntax": EncoderDecoderConfig(
        **_SMALL, positions=SyntaxPositionsConfig(max_distance=2, max_depth=2), key_width=3
    ),
    "encoder-decoder, syntax fused, edges": EncoderDecoderConfig(
        **_SMALL, positions=SyntaxPositionsConfig(max_distance=2, max_depth=2, fusion="nonlinear", relation="edge")
    ),
    "encoder-decoder, syntax per head, window": EncoderDecoderConfig(
        **_SMALL,
        **_MODERN,
        positions=SyntaxPositionsConfig(depth=False, per_head=True, sinusoidal=False),
        attention=WindowAttentionConfig(window=2),
    ),
    "decoder-only, rotary in halves": DecoderOnlyConfig(
        **_SMALL, positions=RotaryPositionsConfig(layout="halves", base=100)
    ),
    "decoder-only, ALiBi, three heads": DecoderOnlyConfig(
        **{**_SMALL, "width": 15, "heads": 3}, positions=AlibiPositionsConfig()
    ),
    "decoder-only, relative per head": DecoderOnlyConfig(
        **_SMALL, positions=RelativePositionsConfig(max_distance=3, per_head=True)
    ),
    "encoder-decoder, window": EncoderDecoderConfig(**_SMALL, attention=WindowAttentionConfig(window=2)),
    "encoder-decoder, BigBird": EncoderDecoderConfig(**_SMALL, key_width=3, attention=_BIGBIRD),
    "encoder-decoder, Linformer": EncoderDecoderConfig(
        **_SMALL, attention=LinformerAttentionConfig(projected_length=3, max_length=64, sharing="none")
    ),
    "decoder-only, window": DecoderOnlyConfig(**_SMALL, attention=WindowAttentionConfig(window=1)),
    "encoder-decoder, grouped-query": EncoderDecoderConfig(
        **_SMALL, kv_heads=2, key_width=3, attention_bias=True, positions=RelativePositionsConfig(max_distance=2)
    ),
    "decoder-only, multi-query, rotary": DecoderOnlyConfig(
        **_SMALL, **_MODERN, kv_heads=1, positions=RotaryPositionsConfig()
    ),
    "decoder-only, grouped-query, ALiBi, window": DecoderOnlyConfig(
        **_SMALL, kv_heads=2, positions=AlibiPositionsConfig(), attention=WindowAttentionConfig(window=2)
    ),
    "decoder-only, normalized queries and keys, squared ReLU, capped logits": DecoderOnlyConfig(
        **_SMALL, qk_norm=True, activation="relu2", logit_soft_cap=3.0, positions=RotaryPositionsConfig()
    ),
    "encoder-decoder, normalized queries and keys, grouped-query": EncoderDecoderConfig(
        **_SMALL, qk_norm=True, kv_heads=2, key_width=3, logit_soft_cap=2.0
    ),
    "decoder-only, wide heads, YaRN, window in some layers": DecoderOnlyConfig(
        **_SMALL,
        **_MODERN,
        kv_heads=2,
        value_width=6,
        qk_norm=True,
        attention_bias="qkv",
        positions=RotaryPositionsConfig(scaling=YarnScalingConfig(factor=2.0, original_length=4)),
        attention=WindowAttentionConfig(window=2, full_layers=(1,)),
    ),
    "encoder-decoder, bucket positions, gates of GELU": EncoderDecoderConfig(
        **{**_SMALL, **_MODERN, "heads": 3, "activation": "geglu-tanh"},
        value_width=6,
        positions=BucketPositionsConfig(buckets=6, max_distance=5),
        scale_scores=False,
    ),
    "decoder-only, parallel sublayers, partly rotated": DecoderOnlyConfig(
        **_SMALL,
        norm_order="pre",
        parallel_sublayers=True,
        attention_bias=True,
        positions=RotaryPositionsConfig(layout="halves", rotated_width=2),
    ),
    "decoder-only, norms on both sides, capped scores, window in some layers": DecoderOnlyConfig(
        **_SMALL,
        **{**_MODERN, "activation": "geglu"},
        sandwich_norm=True,
        attention_soft_cap=2.0,
        positions=RotaryPositionsConfig(window_base=100.0),
        attention=WindowAttentionConfig(window=2, full_layers=(1,)),
    ),
    "decoder-only, experts of SwiGLU, rotary": DecoderOnlyConfig(
        **{**_SMALL, **_MODERN, "feed_forward": 8}, experts=4, positions=RotaryPositionsConfig()
    ),
    "encoder-decoder, three of five experts": EncoderDecoderConfig(
        **{**_SMALL, "feed_forward": 8}, experts=5, experts_per_token=3
    ),
    **RECURRENT,
}
ENCODERS: dict[str, ModelConfig] = {
    "encoder-only": EncoderOnlyConfig(**_SMALL, activation="swish"),
    "encoder-only, learned, segments": EncoderOnlyConfig(
        **_SMALL, **_LEARNED, segments=2, embedding_norm=True, pooling="first-dense"
    ),
    "encoder-only, concatenated sinusoids, hidden tokens": EncoderOnlyConfig(
        **_SMALL,
        positions=SinusoidalPositionsConfig(combine="concatenate"),
        segments=2,
        embedding_norm=True,
        head=TokenHeadConfig(),
    ),
    "encoder-only, hidden tokens": EncoderOnlyConfig(**_SMALL, head=TokenHeadConfig(), pooling="first"),
    "encoder-only, classes": EncoderOnlyConfig(**_SMALL, head=ClassHeadConfig(labels=("bad", "good", "so-so"))),
    "encoder-only, tags": EncoderOnlyConfig(**_SMALL, head=TagHeadConfig(labels=("noun", "verb"))),
    "encoder-only, rotary": EncoderOnlyConfig(**_SMALL, positions=RotaryPositionsConfig()),
    "encoder-only, ALiBi": EncoderOnlyConfig(**_SMALL, positions=AlibiPositionsConfig()),
    "encoder-only, relative": EncoderOnlyConfig(**_SMALL, positions=RelativePositionsConfig(max_distance=2)),
    "encoder-only, windows with their own base, no first norm": EncoderOnlyConfig(
        **_SMALL,
        norm_order="pre",
        embedding_norm=True,
        first_norm=False,
        positions=RotaryPositionsConfig(layout="halves", window_base=50.0),
        attention=WindowAttentionConfig(window=1, full_layers=(0,)),
    ),
    "encoder-only, window": EncoderOnlyConfig(**_SMALL, attention=WindowAttentionConfig(window=1)),
    "encoder-only, BigBird": EncoderOnlyConfig(**_SMALL, attention=_BIGBIRD),
    "encoder-only, Linformer": EncoderOnlyConfig(
        **_SMALL, attention=LinformerAttentionConfig(projected_length=3, max_length=40, sharing="layerwise")
    ),
    "encoder-only, grouped-query, BigBird": EncoderOnlyConfig(**_SMALL, kv_heads=2, attention=_BIGBIRD),
    "encoder-only, grouped-query, Linformer": EncoderOnlyConfig(
        **_SMALL, kv_heads=2, attention=LinformerAttentionConfig(projected_length=3, max_length=40, sharing="none")
    ),
    "encoder-only, two of three experts, hidden tokens": EncoderOnlyConfig(
        **_SMALL, experts=3, activation="gelu", head=TokenHeadConfig()
    ),
    "bidirectional, LSTM": BidirectionalLanguageModelConfig(**_RECURRENT),
    "bidirectional, GRU, untied": BidirectionalLanguageModelConfig(
        **_RECURRENT, cell="gru", tie_output=False, output_bias=True, pooling="first-dense"
    ),
    "bidirectional, ReLU pooling": BidirectionalLanguageModelConfig(**_RECURRENT, pooling="first-relu"),
    "bidirectional, classes": BidirectionalLanguageModelConfig(
        **_RECURRENT, head=ClassHeadConfig(labels=("bad", "good"))
    ),
    "bidirectional, tags": BidirectionalLanguageModelConfig(
        **_RECURRENT, cell="rnn", head=TagHeadConfig(labels=("noun", "verb"))
    ),
}
FAMILY = DECODERS | ENCODERS
GROUPED = [name for name, config in FAMILY.items() if getattr(config, "kv_heads", None) is not None]
MIXTURES = [name for name, config in FAMILY.items() if isinstance(config, TransformerConfig) and config.experts > 1]
SPARSE = [  # while a tap is open, these compute the pairs outside of their pattern too, or experts that are not chosen
    name
    for name, config in FAMILY.items()
    if name in MIXTURES or (isinstance(config, TransformerConfig) and config.attention.kind in ("window", "bigbird"))
]


def make(config: ModelConfig, seed: int = 0) -> Network:
    """Build a network in double precision and evaluation mode, with no parameter left at zero or one."""
    torch.manual_seed(seed)
    network = build(config).double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:
                parameter.abs_().add_(torch.randn_like(parameter) * 0.1)  # gains are initialized with either sign
    return network


@dataclass(frozen=True)
class Batch:
    """Source and target sequences with padding anywhere."""

    source: Tensor
    source_mask: Tensor
    target: Tensor
    target_mask: Tensor

    @property
    def features(self) -> dict[str, Tensor]:
        """Tree features of the sources."""
        return features_of(self.source_mask)

    def row(self, i: int) -> "Batch":
        """Return one pair of sequences, without padding."""
        source, target = self.source[i][self.source_mask[i]], self.target[i][self.target_mask[i]]
        return Batch(
            source[None], torch.ones_like(source[None]).bool(), target[None], torch.ones_like(target[None]).bool()
        )


def features_of(mask: Tensor) -> dict[str, Tensor]:
    """Return features of random trees for a mask (B, S); the tree depends on the number of tokens alone.

    Every third word has two tokens.
    """
    features = {name: torch.zeros_like(mask, dtype=torch.long) for name in SYNTAX_FEATURES}
    for row, here in enumerate(mask):
        words = [token - token // 4 for token in range(int(here.sum()))]
        tree = tree_positions(random_heads(words[-1] + 1, random.Random(len(words))))
        for n, name in enumerate(SYNTAX_FEATURES):
            features[name][row, here] = torch.tensor([tree[word][n] for word in words])
    return features


def hidden(network: Network, batch: Batch) -> Tensor:
    """Return the hidden states of the last stack of any network."""
    if not network.decodes:
        return network.encode(batch.target, batch.target_mask).states
    memory = network.encode(batch.source, batch.source_mask, batch.features) if network.encodes else None
    return network.decode(batch.target, memory, mask=batch.target_mask)


@st.composite
def batches(draw: st.DrawFn, rows: int = 3, longest: int = 7) -> Batch:
    """Draw random sequences with padding at random places: left, right or in the middle."""
    seed = draw(st.integers(0, 2**31))
    batch = draw(st.integers(1, rows))
    generator = torch.Generator().manual_seed(seed)

    def side(length: int) -> tuple[Tensor, Tensor]:
        ids = torch.randint(0, VOCABULARY, (batch, length), generator=generator)
        mask = torch.rand(batch, length, generator=generator) < 0.7
        mask[torch.arange(batch), torch.randint(0, length, (batch,), generator=generator)] = True  # at least one token
        return ids, mask

    source, source_mask = side(draw(st.integers(1, longest)))
    target, target_mask = side(draw(st.integers(1, longest)))
    return Batch(source, source_mask, target, target_mask)
