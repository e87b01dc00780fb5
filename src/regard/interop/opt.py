"""Import of OPT: a decoder with learned positions and biases; GPT-2 with ReLU and separate projections."""

from pathlib import Path

import torch
from torch import Tensor

from regard.config import DecoderOnlyConfig, LearnedPositionsConfig, SpecialTokensConfig
from regard.interop.hf_folder import HFConfig, read_weights
from regard.interop.hf_spec import (
    ImportPlan,
    TensorLayout,
    TensorMapping,
    is_output_tied,
    map_module,
    read_activation,
    with_prefixes,
)
from regard.interop.hf_tokenizers import gpt2_tokenizer, special_token_names
from regard.interop.marian import MARIAN_ENCODER_LAYER

OPT_EMBEDDING, OPT_OUTPUT = "model.decoder.embed_tokens.weight", "lm_head.weight"
OPT_HEADS = {
    "score.": "regard's language model has no text classification head",
    "qa_outputs.": "regard's language model has no question-answering head",
}
POSITION_OFFSET = 2  # of the first position id
POSITIONS = TensorLayout(lambda parts: parts[0][POSITION_OFFSET:].clone(), lambda whole, _: [_with_unused_rows(whole)])


def opt_mappings(model: DecoderOnlyConfig) -> list[TensorMapping]:
    """Map our tensors to those of an `OPTForCausalLM`.

    >>> opt_mappings(DecoderOnlyConfig(layers=1))[1].hf_names
    ('model.decoder.embed_positions.weight',)
    """
    return [
        TensorMapping("decoder.embedding.weight", (OPT_EMBEDDING,)),
        TensorMapping("decoder.embedding.positions.weight", ("model.decoder.embed_positions.weight",), POSITIONS),
        *(
            entry
            for n in range(model.layers)
            for entry in with_prefixes(MARIAN_ENCODER_LAYER, f"decoder.layers.{n}.", f"model.decoder.layers.{n}.")
        ),
        *(map_module("decoder.norm", "model.decoder.final_layer_norm") if model.norm_order == "pre" else []),
        *([] if model.tie_output else [TensorMapping("output.weight", (OPT_OUTPUT,))]),
    ]


def _with_unused_rows(table: Tensor) -> Tensor:
    return torch.cat([table.new_zeros(POSITION_OFFSET, table.shape[1]), table])


def import_opt(folder: Path, config: HFConfig) -> ImportPlan:
    """Plan the import of a folder of an OPT class."""
    config.require("enable_bias", True, "OPT has biases")
    config.require("layer_norm_elementwise_affine", True, "OPT has norms with gains and biases")
    vocab_size, width = config.size("vocab_size", 50272), config.size("hidden_size", 768)
    config.require("word_embed_proj_dim", width, "embeddings are as wide as the model")
    weights, notes = read_weights(folder, "model.", (OPT_OUTPUT, *OPT_HEADS)), list[str]()
    is_pre_norm = config.flag("do_layer_norm_before", True)
    model = DecoderOnlyConfig(
        vocab_size=vocab_size,
        width=width,
        layers=config.layers("num_hidden_layers", 12),
        heads=config.heads("num_attention_heads", 12, "hidden_size", width),
        feed_forward=config.size("ffn_dim", 3072),
        activation=read_activation(config, "activation_function", "relu"),
        norm_order="pre" if is_pre_norm else "post",
        positions=LearnedPositionsConfig(max_length=config.size("max_position_embeddings", 2048)),
        dropout=config.probability("dropout", 0.1),
        attention_dropout=config.probability("attention_dropout", 0.0),
        attention_bias=True,
        scale_embeddings=False,
        tie_output=is_output_tied(config, weights, notes, OPT_EMBEDDING, OPT_OUTPUT, default=True),
    )
    tokenizers = gpt2_tokenizer(folder)
    end = config.token("eos_token_id", 2, vocab_size)
    end = vocab_size - 1 if end is None else end
    start, pad = config.token("bos_token_id", 2, vocab_size), config.token("pad_token_id", 1, vocab_size)
    unknown = tokenizers.id_of(special_token_names(folder, unk_token="</s>")["unk_token"])
    tokens = SpecialTokensConfig(
        pad=end if pad is None else pad,
        unknown=end if unknown is None else unknown,
        start=end if start is None else start,
        end=end,
    )
    return ImportPlan(model, tokens, opt_mappings(model), weights, tokenizers, r"$^", OPT_HEADS, notes)
