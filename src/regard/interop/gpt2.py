"""Import and export of GPT-2: a decoder with pre-norm, learned positions, biases and a tied output projection.

Exports store computed positions as GPT-2's table. GPT-2 does not scale embeddings: where our network does, the exported
ones are multiplied by the factor, and the output projection, which is not scaled, is stored separately.
"""

import math
from pathlib import Path

from regard.config import Config, DecoderOnlyConfig, LearnedPositionsConfig, SpecialTokensConfig
from regard.interop.hf_folder import HFConfig, read_weights
from regard.interop.hf_spec import (
    TRANSPOSED,
    HFSpec,
    ImportPlan,
    TensorMapping,
    common_reasons,
    first_reason,
    hf_activation,
    is_output_tied,
    map_module,
    read_activation,
    suppressed_token_ids,
    to_huggingface,
    to_tensors,
    token_or_default,
    with_prefixes,
)
from regard.interop.hf_tokenizers import ImportedTokenizers, gpt2_tokenizer, special_token_names
from regard.interop.weight_transforms import Arrays, add_zero_biases, equalize_head_widths, position_table

GPT2_EMBEDDING, GPT2_OUTPUT = "transformer.wte.weight", "lm_head.weight"
GPT2_ALIASES = {
    "n_embd": "hidden_size",
    "n_positions": "max_position_embeddings",
    "n_head": "num_attention_heads",
    "n_layer": "num_hidden_layers",
}
GPT2_LAYER = [
    *map_module("attention_residual.norm", "ln_1"),
    *map_module("attention.query_key_value", "attn.c_attn", weight=TRANSPOSED),
    *map_module("attention.output", "attn.c_proj", weight=TRANSPOSED),
    *map_module("feed_forward_residual.norm", "ln_2"),
    *map_module("feed_forward.inner", "mlp.c_fc", weight=TRANSPOSED),
    *map_module("feed_forward.output", "mlp.c_proj", weight=TRANSPOSED),
]
GPT2_BUFFERS = r"transformer\.h\.\d+\.attn\.(masked_)?bias"
GPT2_HEADS = {
    "multiple_choice_head.": "regard's GPT has no multiple-choice head",
    "score.": "regard's GPT has no text classification head",
    "classifier.": "regard's GPT has no token classification head",
    "qa_outputs.": "regard's GPT has no question-answering head",
}


def gpt2_mappings(model: DecoderOnlyConfig) -> list[TensorMapping]:
    """Map our tensors to those of a `GPT2LMHeadModel`.

    >>> [(entry.name, entry.hf_names) for entry in gpt2_mappings(DecoderOnlyConfig(layers=1))][0]
    ('decoder.embedding.weight', ('transformer.wte.weight',))
    """
    return [
        TensorMapping("decoder.embedding.weight", (GPT2_EMBEDDING,)),
        TensorMapping("decoder.embedding.positions.weight", ("transformer.wpe.weight",)),
        *(
            entry
            for n in range(model.layers)
            for entry in with_prefixes(GPT2_LAYER, f"decoder.layers.{n}.", f"transformer.h.{n}.")
        ),
        *map_module("decoder.norm", "transformer.ln_f"),
        *([] if model.tie_output else [TensorMapping("output.weight", (GPT2_OUTPUT,))]),
    ]


def import_gpt2(folder: Path, config: HFConfig) -> ImportPlan:
    """Plan the import of a folder of a GPT-2 class."""
    config = HFConfig(config.path, config.values, GPT2_ALIASES)
    config.require("scale_attn_by_inverse_layer_idx", False, "layers all have the same score scale")
    config.require("add_cross_attention", False, "GPT has no cross-attention")
    vocab_size, width = config.size("vocab_size", 50257), config.size("n_embd", 768)
    dropout, notes = config.probability("resid_pdrop", 0.1), list[str]()
    if config.probability("embd_pdrop", 0.1) != dropout:
        notes.append(f"embd_pdrop differs from resid_pdrop; further training uses {dropout} for embeddings too.")
    weights = read_weights(folder, "transformer.", (GPT2_OUTPUT, *GPT2_HEADS))
    model = DecoderOnlyConfig(
        vocab_size=vocab_size,
        width=width,
        layers=config.layers("n_layer", 12),
        heads=config.heads("n_head", 12, "n_embd", width),
        feed_forward=4 * width if config.get("n_inner") is None else config.size("n_inner", 4 * width),
        activation=read_activation(config, "activation_function", "gelu_new"),
        norm_order="pre",
        norm_epsilon=config.epsilon("layer_norm_epsilon", 1e-5),
        positions=LearnedPositionsConfig(max_length=config.size("n_positions", 1024)),
        dropout=dropout,
        attention_dropout=config.probability("attn_pdrop", 0.1),
        attention_bias=True,
        scale_embeddings=False,
        scale_scores=config.flag("scale_attn_weights", True),
        tie_output=is_output_tied(config, weights, notes, GPT2_EMBEDDING, GPT2_OUTPUT, default=True),
    )
    tokenizers = gpt2_tokenizer(folder)
    tokens = _import_special_tokens(config, vocab_size, tokenizers, notes)
    return ImportPlan(model, tokens, gpt2_mappings(model), weights, tokenizers, GPT2_BUFFERS, GPT2_HEADS, notes)


def _import_special_tokens(
    config: HFConfig, vocab_size: int, tokenizers: ImportedTokenizers, notes: list[str]
) -> SpecialTokensConfig:
    """Return the special tokens; GPT-2 itself has only an end token, which is used for all of them."""
    end = config.token("eos_token_id", 50256, vocab_size)
    if end is None:
        end = token_or_default(tokenizers.id_of("<|endoftext|>"), vocab_size - 1, "the end token", notes)
    start, pad = (config.token(name, None, vocab_size) for name in ("bos_token_id", "pad_token_id"))
    unknown = tokenizers.id_of(special_token_names(config.path.parent, unk_token="<|endoftext|>")["unk_token"])
    return SpecialTokensConfig(
        pad=end if pad is None else pad,
        unknown=end if unknown is None else unknown,
        start=end if start is None else start,
        end=end,
    )


GPT2_GENERATED_TOKENS = 256  # default of generation_config.json


def unsupported_by_gpt2(model: DecoderOnlyConfig) -> str | None:
    """Return why GPT-2 cannot hold a network; None if it can."""
    return first_reason(
        {
            "GPT-2 normalizes before each sublayer, and this network after": model.norm_order == "post",
            **common_reasons(model, "GPT-2"),
            "GPT-2 does not normalize embeddings, and this network does": model.embedding_norm,
            "GPT-2 has no bias on its logits, and this network has": model.output_bias,
        }
    )


def export_gpt2(config: Config, model: DecoderOnlyConfig, arrays: Arrays) -> HFSpec:
    """Return the contents of a GPT-2 folder."""
    tokens, tied = config.tokens, model.tie_output and not model.scale_embeddings
    embedding, positions = arrays["decoder.embedding.weight"], position_table(arrays, "decoder", model)
    arrays = add_zero_biases(equalize_head_widths(arrays, model)) | {
        "decoder.embedding.weight": embedding * math.sqrt(model.width) if model.scale_embeddings else embedding,
        "decoder.embedding.positions.weight": positions,
    }
    hf_tensors = to_huggingface(gpt2_mappings(model.model_copy(update={"tie_output": tied})), to_tensors(arrays))
    hf_config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": model.vocab_size,
        "n_positions": len(positions),
        "n_embd": model.width,
        "n_layer": model.layers,
        "n_head": model.heads,
        "n_inner": model.feed_forward,
        "activation_function": hf_activation(model),
        "layer_norm_epsilon": model.norm_epsilon,
        "tie_word_embeddings": tied,
        "resid_pdrop": model.dropout,
        "embd_pdrop": model.dropout,
        "attn_pdrop": model.attention_dropout,
        "bos_token_id": tokens.start,
        "eos_token_id": tokens.end,
        "pad_token_id": tokens.pad,
    }
    generation_config = {
        "bos_token_id": tokens.start,
        "eos_token_id": tokens.end,
        "pad_token_id": tokens.pad,
        "bad_words_ids": suppressed_token_ids(config) or None,
        "max_length": min(GPT2_GENERATED_TOKENS, len(positions)),
    }
    special = {"pad_token": tokens.pad, "unk_token": tokens.unknown, "bos_token": tokens.start, "eos_token": tokens.end}
    tokenizer_config = {
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": len(positions),
        "padding_side": "left",  # so that generated tokens directly follow the text
    }
    prefix = (tokens.start,) if tokens.start != tokens.end else ()
    return HFSpec(hf_config, hf_tensors, prefix, (), special, tokenizer_config, generation_config)
