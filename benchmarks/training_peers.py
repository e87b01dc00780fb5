"""Other implementations that benchmarks/training.py compares with: torch.nn.Transformer, Hugging Face and a small GPT.

Each is trained by the usual loop, in float32 or with `torch.autocast` in bfloat16.

B batch · S source length · T target length · C width · V vocabulary
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.config import DecoderOnlyConfig, EncoderDecoderConfig, SpecialTokensConfig
from regard.training.batches import Batch

SPECIAL = SpecialTokensConfig()
LEARNING_RATE = 1e-4
CONTEXT_LENGTH = 256  # of the language model


def label_smoothing(config: EncoderDecoderConfig | DecoderOnlyConfig) -> float:
    """Return the paper's value for translation, and zero for a language model."""
    return 0.1 if isinstance(config, EncoderDecoderConfig) else 0.0


class Peer:
    """A network that computes all logits, and the usual training step around it."""

    def __init__(self, network: nn.Module, smoothing: float) -> None:
        self.network = network.train()
        self.smoothing = smoothing
        self.dtype = torch.float32  # of matrix products
        self.optimizer: torch.optim.Optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)

    def logits(self, batch: Any) -> Tensor:
        """Return the logits (B, T, V)."""
        raise NotImplementedError

    def step(self, batch: Batch) -> float:
        """Train on a batch as in the tutorials, and return the loss."""
        loss = self.loss(batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def loss(self, batch: Any) -> Tensor:
        """Return the mean loss of a batch, with its matrix products in `dtype`."""
        with torch.autocast("cpu", self.dtype, enabled=self.dtype != torch.float32):
            return F.cross_entropy(
                self.logits(batch).flatten(0, 1),
                batch.labels.flatten(),
                ignore_index=SPECIAL.pad,
                label_smoothing=self.smoothing,
            )


class TorchNetwork(nn.Module):
    """torch.nn.Transformer with what it leaves to its users: embeddings, positions, projection and masks."""

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.width, padding_idx=SPECIAL.pad)
        nn.init.normal_(self.embedding.weight, std=config.width**-0.5)
        self.transformer = nn.Transformer(
            config.width,
            config.heads,
            config.layers,
            config.layers,
            config.feed_forward,
            dropout=config.dropout,
            batch_first=True,
        )
        self.projection = nn.Linear(config.width, config.vocab_size, bias=False)
        self.projection.weight = self.embedding.weight
        self.dropout = nn.Dropout(config.dropout)
        position, i = torch.arange(512)[:, None], torch.arange(0, config.width, 2)
        angle = position * torch.exp(-math.log(10_000) * i / config.width)
        self.register_buffer("positions", torch.stack([angle.sin(), angle.cos()], 2).flatten(1))

    def embed(self, ids: Tensor) -> Tensor:
        """Embed ids (B, T) -> (B, T, C)."""
        embedded: Tensor = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        dropped: Tensor = self.dropout(embedded + self.positions[: ids.size(1)])  # type: ignore[index]
        return dropped

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the logits (B, T, V)."""
        length = target.size(1)
        source_padding, target_padding = source == SPECIAL.pad, target == SPECIAL.pad
        states = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=torch.ones(length, length, dtype=torch.bool).triu(1),
            src_key_padding_mask=source_padding,
            tgt_key_padding_mask=target_padding,
            memory_key_padding_mask=source_padding,
        )
        logits: Tensor = self.projection(states)
        return logits


class TorchTransformer(Peer):
    """torch.nn.Transformer."""

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__(TorchNetwork(config), label_smoothing(config))

    def logits(self, batch: Any) -> Tensor:
        """Return the logits (B, T, V)."""
        logits: Tensor = self.network(batch.source, batch.target)
        return logits


class Marian(Peer):
    """MarianMTModel of Hugging Face."""

    def __init__(self, config: EncoderDecoderConfig) -> None:
        from transformers import MarianConfig, MarianMTModel

        settings = MarianConfig(
            vocab_size=config.vocab_size,
            d_model=config.width,
            encoder_layers=config.layers,
            decoder_layers=config.layers,
            encoder_attention_heads=config.heads,
            decoder_attention_heads=config.heads,
            encoder_ffn_dim=config.feed_forward,
            decoder_ffn_dim=config.feed_forward,
            activation_function="relu",
            dropout=config.dropout,
            attention_dropout=0.0,
            activation_dropout=0.0,
            scale_embedding=True,
            max_position_embeddings=512,
            pad_token_id=SPECIAL.pad,
            eos_token_id=SPECIAL.end,
            decoder_start_token_id=SPECIAL.start,
            use_cache=False,
        )
        super().__init__(MarianMTModel(settings), label_smoothing(config))

    def logits(self, batch: Any) -> Tensor:
        """Return the logits (B, T, V)."""
        logits: Tensor = self.network(
            input_ids=batch.source,
            attention_mask=(batch.source != SPECIAL.pad).long(),
            decoder_input_ids=batch.target,
            decoder_attention_mask=(batch.target != SPECIAL.pad).long(),
        ).logits
        return logits


class GPT2(Peer):
    """GPT2LMHeadModel of Hugging Face."""

    def __init__(self, config: DecoderOnlyConfig) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        settings = GPT2Config(
            vocab_size=config.vocab_size,
            n_embd=config.width,
            n_layer=config.layers,
            n_head=config.heads,
            n_inner=config.feed_forward,
            n_positions=CONTEXT_LENGTH,
            resid_pdrop=config.dropout,
            embd_pdrop=config.dropout,
            attn_pdrop=config.attention_dropout,
            bos_token_id=SPECIAL.start,
            eos_token_id=SPECIAL.end,
            use_cache=False,
        )
        super().__init__(GPT2LMHeadModel(settings), 0.0)

    def logits(self, batch: Any) -> Tensor:
        """Return the logits (B, T, V)."""
        logits: Tensor = self.network(input_ids=batch.target).logits
        return logits


class SmallGPT(nn.Module):
    """The GPT of small training scripts: one projection to q, k and v, SDPA with `is_causal`, GELU, a tied head."""

    def __init__(self, config: DecoderOnlyConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        self.positions = nn.Embedding(CONTEXT_LENGTH, config.width)
        self.blocks = nn.ModuleList(SmallGPTBlock(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.dropout = nn.Dropout(config.dropout)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits (B, T, V)."""
        x = self.dropout(self.embedding(ids) + self.positions.weight[: ids.size(1)])
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.embedding.weight)


class SmallGPTBlock(nn.Module):
    """Pre-norm attention and feed-forward layer."""

    def __init__(self, config: DecoderOnlyConfig) -> None:
        super().__init__()
        self.heads, self.attention_dropout = config.heads, config.attention_dropout
        self.attention_norm, self.norm = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.query_key_value = nn.Linear(config.width, 3 * config.width)
        self.output = nn.Linear(config.width, config.width)
        self.feed_forward = nn.Sequential(
            nn.Linear(config.width, config.feed_forward), nn.GELU(), nn.Linear(config.feed_forward, config.width)
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, C) -> (B, T, C)"""
        projected = self.query_key_value(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = projected.permute(2, 0, 3, 1, 4)  # (B, H, T, D) each
        dropout = self.attention_dropout if self.training else 0.0
        heads = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        x = x + self.dropout(self.output(heads.transpose(1, 2).flatten(2)))
        out: Tensor = x + self.dropout(self.feed_forward(self.norm(x)))
        return out


class SmallGPTLoop(Peer):
    """`SmallGPT` with the loop of nanoGPT: AdamW with decay of matrices only, and the gradient norm clipped to 1."""

    def __init__(self, config: DecoderOnlyConfig) -> None:
        super().__init__(SmallGPT(config), 0.0)
        parameters = list(self.network.parameters())
        decayed, others = [p for p in parameters if p.dim() >= 2], [p for p in parameters if p.dim() < 2]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.95))

    def logits(self, batch: Any) -> Tensor:
        """Return the logits (B, T, V)."""
        logits: Tensor = self.network(batch.target)
        return logits

    def step(self, batch: Batch) -> float:
        """Train on a batch, and return the loss."""
        loss = self.loss(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


BFLOAT16 = ", bfloat16"  # the suffix of peers that are trained with autocast
PEERS: dict[str, dict[str, Callable[[Any], Peer]]] = {
    "encoder-decoder": {"torch.nn.Transformer": TorchTransformer, "HF Marian": Marian},
    "decoder-only": {"HF GPT-2": GPT2, "nanoGPT's loop": SmallGPTLoop},
}


def make_peer(name: str, config: EncoderDecoderConfig | DecoderOnlyConfig) -> Peer:
    """Return a peer by its name in `PEERS`, with or without the suffix `BFLOAT16`."""
    peer = PEERS[config.kind][name.removesuffix(BFLOAT16)](config)
    peer.dtype = torch.bfloat16 if name.endswith(BFLOAT16) else torch.float32
    return peer
