"""A decoder-only network as a `GPT2LMHeadModel`.

GPT-2 learned its positions: what ours computes becomes its table. It does not scale embeddings: where ours does, they
are written larger, and the output projection, which is not scaled, apart from them.
"""

import math

from regard.config import Config, DecoderOnlyConfig
from regard.interop.equivalents import Tensors, even_heads, position_table, with_all_biases
from regard.interop.gpt2 import gpt2_table
from regard.interop.mapping import to_theirs
from regard.interop.theirs import Theirs, first_that_holds, never_written, their_activation, what_no_class_holds

LONGEST = 256  # tokens of a text, unless more are asked for


def why_not_gpt2(model: DecoderOnlyConfig) -> str | None:
    """Why GPT-2 cannot hold a network; None if it can."""
    return first_that_holds(
        {
            "GPT-2 normalises before each sub-layer, and this network after": model.norm_order == "post",
            **what_no_class_holds(model, "GPT-2"),
            "GPT-2 does not normalise embeddings, and this network does": model.embedding_norm,
            "GPT-2 has no bias on its logits, and this network has": model.output_bias,
        }
    )


def to_gpt2(config: Config, model: DecoderOnlyConfig, tensors: Tensors) -> Theirs:
    """The network in GPT-2's terms."""
    tokens, tied = config.tokens, model.tie_output and not model.scale_embeddings
    embedding, positions = tensors["decoder.embedding.weight"], position_table(tensors, "decoder", model)
    tensors = with_all_biases(even_heads(tensors, model)) | {
        "decoder.embedding.weight": embedding * math.sqrt(model.width) if model.scale_embeddings else embedding,
        "decoder.embedding.positions.weight": positions,
    }
    theirs = to_theirs(gpt2_table(model.model_copy(update={"tie_output": tied})), tensors)
    settings = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": model.vocab_size,
        "n_positions": len(positions),
        "n_embd": model.width,
        "n_layer": model.layers,
        "n_head": model.heads,
        "n_inner": model.feed_forward,
        "activation_function": their_activation(model),
        "layer_norm_epsilon": model.norm_epsilon,
        "tie_word_embeddings": tied,
        "resid_pdrop": model.dropout,
        "embd_pdrop": model.dropout,
        "attn_pdrop": model.attention_dropout,
        "bos_token_id": tokens.start,
        "eos_token_id": tokens.end,
        "pad_token_id": tokens.pad,
    }
    generation = {
        "bos_token_id": tokens.start,
        "eos_token_id": tokens.end,
        "pad_token_id": tokens.pad,
        "bad_words_ids": never_written(config) or None,
        "max_length": min(LONGEST, len(positions)),
    }
    special = {"pad_token": tokens.pad, "unk_token": tokens.unknown, "bos_token": tokens.start, "eos_token": tokens.end}
    tokenizer = {
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": len(positions),
        "padding_side": "left",  # so that what is generated follows the text, not its pads
    }
    before = (tokens.start,) if tokens.start != tokens.end else ()
    return Theirs(settings, theirs, before, (), special, tokenizer, generation)
