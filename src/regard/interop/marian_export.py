"""An encoder-decoder network as a `MarianMTModel`.

Marian's positions are sinusoids in halves, all sines before all cosines. Where ours alternate, the axes of the model
width change places throughout the network.
"""

import torch
from torch import Tensor

from regard.config import Config, EncoderDecoderConfig, SinusoidalPositionsConfig
from regard.interop.ctranslate2_limits import POSITIONS
from regard.interop.equivalents import Tensors, even_heads, reordered, with_all_biases
from regard.interop.mapping import to_theirs
from regard.interop.marian import SHARED, SOURCE, TARGET, marian_table
from regard.interop.theirs import Theirs, first_that_holds, never_written, their_activation, what_no_class_holds

EPSILON = 1e-5  # of its norms, which is no setting
LONGEST = 512  # tokens of a translation, unless more are asked for


def why_not_marian(config: Config, model: EncoderDecoderConfig) -> str | None:
    """Why Marian cannot hold a network; None if it can."""
    vocabulary = min(model.vocab_size, model.target_vocab_size or model.vocab_size)
    tokens = config.tokens
    return first_that_holds(
        {
            "Marian normalises after each sub-layer, and this network before": model.norm_order == "pre",
            **what_no_class_holds(model, "Marian"),
            f"the epsilon of Marian's norms is {EPSILON}, and of this network's {model.norm_epsilon}": (
                model.norm_epsilon != EPSILON
            ),
            "Marian does not normalise embeddings, and this network does": model.embedding_norm,
            f"Marian's positions are sinusoidal, and this network's are {model.positions.kind}": not isinstance(
                model.positions, SinusoidalPositionsConfig
            ),
            "its pad, start or end token is past the last token of a vocabulary": (
                max(tokens.pad, tokens.start, tokens.end) >= vocabulary
            ),
        }
    )


def to_marian(config: Config, model: EncoderDecoderConfig, tensors: Tensors) -> Theirs:
    """The network in Marian's terms."""
    tokens = config.tokens
    tensors = with_all_biases(even_heads(tensors, model))
    if isinstance(model.positions, SinusoidalPositionsConfig) and model.positions.layout == "interleaved":
        tensors = reordered(tensors, sines_first(model.width))
    theirs = to_theirs(marian_table(model.model_copy(update={"output_bias": True})), tensors)
    if model.share_embeddings and not model.tie_output:  # what is not tied to the output is tied to nothing
        theirs |= {SOURCE: theirs[SHARED], TARGET: theirs[SHARED]}
    settings = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": model.vocab_size,
        "decoder_vocab_size": model.target_vocab_size or model.vocab_size,
        "d_model": model.width,
        "encoder_layers": model.layers,
        "decoder_layers": model.decoder_layers or model.layers,
        "encoder_attention_heads": model.heads,
        "decoder_attention_heads": model.heads,
        "encoder_ffn_dim": model.feed_forward,
        "decoder_ffn_dim": model.feed_forward,
        "activation_function": their_activation(model),
        "static_position_embeddings": True,
        "max_position_embeddings": POSITIONS,
        "scale_embedding": model.scale_embeddings,
        "share_encoder_decoder_embeddings": model.share_embeddings,
        "tie_word_embeddings": model.tie_output,
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_dropout": model.activation_dropout,
        "pad_token_id": tokens.pad,
        "eos_token_id": tokens.end,
        "decoder_start_token_id": tokens.start,
        "forced_eos_token_id": None,
    }
    generation = {
        "pad_token_id": tokens.pad,
        "eos_token_id": tokens.end,
        "decoder_start_token_id": tokens.start,
        "bad_words_ids": never_written(config) or None,
        "max_length": LONGEST,
        "num_beams": 4,
    }
    special = {"pad_token": tokens.pad, "unk_token": tokens.unknown, "bos_token": tokens.start, "eos_token": tokens.end}
    tokenizer = {"model_input_names": ["input_ids", "attention_mask"], "model_max_length": POSITIONS}
    return Theirs(settings, theirs, (), (tokens.end,), special, tokenizer, generation)


def sines_first(width: int) -> Tensor:
    """The order of axes that makes sines and cosines in turn all sines, then all cosines.

    >>> sines_first(5)
    tensor([0, 2, 4, 1, 3])
    """
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
