"""Other implementations that benchmarks/training.py compares with: torch.nn.Transformer and Hugging Face models.

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
        self.optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)

    def logits(self, batch: Any) -> Tensor:
        """Return the logits (B, T, V)."""
        raise NotImplementedError

    def step(self, batch: Batch) -> float:
        """Train on a batch as in the tutorials, and return the loss."""
        labels: Tensor = batch.labels  # type: ignore[attr-defined]
        loss = F.cross_entropy(
            self.logits(batch).flatten(0, 1),
            labels.flatten(),
            ignore_index=SPECIAL.pad,
            label_smoothing=self.smoothing,
        )
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


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


PEERS: dict[str, dict[str, Callable[[Any], Peer]]] = {
    "encoder-decoder": {"torch.nn.Transformer": TorchTransformer, "HF Marian": Marian},
    "decoder-only": {"HF GPT-2": GPT2},
}
