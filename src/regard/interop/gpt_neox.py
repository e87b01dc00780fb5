"""Import of GPT-NeoX (also Pythia): parallel sublayers, partly rotated heads, layer norms, biases."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from regard.config import DecoderOnlyConfig, RotaryPositionsConfig, SpecialTokensConfig
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
from regard.interop.hf_tokenizers import copy_tokenizers, no_tokenizers
from regard.interop.llama import read_rotary
from regard.models.folder_files import TOKENIZER_FILE

NEOX_EMBEDDING, NEOX_OUTPUT = "gpt_neox.embed_in.weight", "embed_out.weight"
NEOX_BUFFERS = r"gpt_neox\.(layers\.\d+\.attention\.)?(bias|masked_bias|rotary_emb\.inv_freq)"
NEOX_HEADS = {
    "score.": "regard's language model has no text classification head",
    "classifier.": "regard's language model has no token classification head",
    "qa_outputs.": "regard's language model has no question-answering head",
}


def neox_mappings(model: DecoderOnlyConfig) -> list[TensorMapping]:
    """Map our tensors to those of a `GPTNeoXForCausalLM`.

    >>> neox_mappings(DecoderOnlyConfig(layers=1))[3].name
    'decoder.layers.0.attention.query_key_value.weight'
    """

    def by_projection(parts: Sequence[Tensor]) -> Tensor:
        heads = parts[0].unflatten(0, (model.heads, 3, -1))  # theirs: query, key and value of each head in turn
        return torch.cat([heads[:, n].flatten(0, 1) for n in range(3)])

    def by_head(whole: Tensor, _: int) -> list[Tensor]:
        return [whole.unflatten(0, (3, model.heads, -1)).transpose(0, 1).flatten(0, 2).contiguous()]

    layout = TensorLayout(by_projection, by_head)
    layer = [
        *map_module("attention_residual.norm", "input_layernorm"),
        *(
            TensorMapping(f"attention.query_key_value.{kind}", (f"attention.query_key_value.{kind}",), layout)
            for kind in ("weight", "bias")
        ),
        *map_module("attention.output", "attention.dense"),
        *map_module("feed_forward_residual.norm", "post_attention_layernorm"),
        *map_module("feed_forward.inner", "mlp.dense_h_to_4h"),
        *map_module("feed_forward.output", "mlp.dense_4h_to_h"),
    ]
    return [
        TensorMapping("decoder.embedding.weight", (NEOX_EMBEDDING,)),
        *(
            entry
            for n in range(model.layers)
            for entry in with_prefixes(layer, f"decoder.layers.{n}.", f"gpt_neox.layers.{n}.")
        ),
        *map_module("decoder.norm", "gpt_neox.final_layer_norm"),
        *([] if model.tie_output else [TensorMapping("output.weight", (NEOX_OUTPUT,))]),
    ]


def import_neox(folder: Path, config: HFConfig) -> ImportPlan:
    """Plan the import of a folder of a GPT-NeoX class."""
    config.require("attention_bias", True, "GPT-NeoX has biases")
    vocab_size, width = config.size("vocab_size", 50432), config.size("hidden_size", 6144)
    heads = config.heads("num_attention_heads", 64, "hidden_size", width)
    weights, notes = read_weights(folder, "gpt_neox.", (NEOX_OUTPUT, *NEOX_HEADS)), list[str]()
    model = DecoderOnlyConfig(
        vocab_size=vocab_size,
        width=width,
        layers=config.layers("num_hidden_layers", 44),
        heads=heads,
        feed_forward=config.size("intermediate_size", 24576),
        activation=read_activation(config, "hidden_act", "gelu"),
        norm_order="pre",
        norm_epsilon=config.epsilon("layer_norm_eps", 1e-5),
        parallel_sublayers=config.flag("use_parallel_residual", True),
        positions=_positions(config, width // heads, notes),
        dropout=config.probability("hidden_dropout", 0.0),
        attention_dropout=config.probability("attention_dropout", 0.0),
        attention_bias=True,
        scale_embeddings=False,
        tie_output=is_output_tied(config, weights, notes, NEOX_EMBEDDING, NEOX_OUTPUT, default=False),
    )
    tokenizers = copy_tokenizers(folder, TOKENIZER_FILE)
    if not tokenizers.by_file:
        tokenizers = no_tokenizers(f"The folder has no {TOKENIZER_FILE}")
    end = config.token("eos_token_id", 2, vocab_size)
    end = vocab_size - 1 if end is None else end
    tokens = SpecialTokensConfig(pad=end, unknown=end, start=end, end=end)
    return ImportPlan(model, tokens, neox_mappings(model), weights, tokenizers, NEOX_BUFFERS, NEOX_HEADS, notes)


def _positions(config: HFConfig, head_width: int, notes: list[str]) -> RotaryPositionsConfig:
    """Return rotary positions of the fraction of a head that the config gives, under its present or old name."""
    table = config.table("rope_parameters")
    fraction = table.get("partial_rotary_factor", config.get("rotary_pct", 0.25))
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction <= 1:
        raise config.error("rotary_pct", "should be a number above 0, up to 1")
    rotated = int(head_width * fraction)
    if rotated < 2 or rotated % 2:
        raise config.error("rotary_pct", f"rotates {rotated} units of a head, which are not pairs")
    values = {**config.values, "rope_parameters": {**table, "partial_rotary_factor": 1.0}}
    values.setdefault("rope_theta", config.get("rotary_emb_base", 10_000.0))
    positions = read_rotary(HFConfig(config.path, values), notes)
    return positions.model_copy(update={"rotated_width": None if rotated == head_width else rotated})
