"""Import of RoBERTa, XLM-RoBERTa, CamemBERT and RoBERTa-PreLayerNorm.

They have the layers of BERT, and four differences. Position ids start after that of the padding token, so the first
rows of the table are not used. There is often only one segment, whose vector is added to every token: it becomes part
of the positions. The head for masked tokens has its own names and always uses GELU, and the text classifier has its own
dense layer instead of the pooler. RoBERTa-PreLayerNorm normalizes before each sublayer, as most large models do.
"""

from pathlib import Path

import torch
from torch import Tensor

from regard.config import (
    ClassHeadConfig,
    EncoderOnlyConfig,
    LearnedPositionsConfig,
    SpecialTokensConfig,
    TokenHeadConfig,
)
from regard.interop.bert import BERT_LAYER, BERT_PROJECTIONS
from regard.interop.encoder_heads import (
    POOLING_FILE,
    UNSUPPORTED_HEADS,
    UNTIED_OUTPUT,
    import_label_head,
    label_head_dropout,
    label_head_mappings,
    read_pooling,
    take_tied_lm_head,
)
from regard.interop.hf_folder import HFConfig, read_weights
from regard.interop.hf_spec import (
    ImportPlan,
    TensorLayout,
    TensorMapping,
    map_module,
    read_activation,
    token_or_default,
    with_prefixes,
)
from regard.interop.hf_tokenizers import ImportedTokenizers, roberta_tokenizer, special_token_names, xlmr_tokenizer

PRE_NORM_LAYER = [
    *BERT_PROJECTIONS,
    *map_module("attention_residual.norm", "attention.LayerNorm"),
    *map_module("feed_forward_residual.norm", "intermediate.LayerNorm"),
]
ROBERTA_LM_HEAD = [  # its output matrix is the embedding
    *map_module("head.dense", "lm_head.dense"),
    *map_module("head.norm", "lm_head.layer_norm"),
    TensorMapping("head.output.bias", ("lm_head.bias",)),
]
TEXT_HEAD_DENSE, TEXT_HEAD_OUTPUT, TOKEN_HEAD = "classifier.dense", "classifier.out_proj", "classifier"
TOKENIZERS = {
    "roberta": roberta_tokenizer,
    "roberta-prelayernorm": roberta_tokenizer,
    "xlm-roberta": xlmr_tokenizer,
    "camembert": xlmr_tokenizer,
}


def roberta_prefix(model: EncoderOnlyConfig) -> str:
    """Return the prefix of the tensors of the encoder."""
    return "roberta_prelayernorm." if model.norm_order == "pre" else "roberta."


def roberta_mappings(model: EncoderOnlyConfig, offset: int) -> list[TensorMapping]:
    """Map our tensors to those of a `RobertaModel` inside a model with a head; `offset` is the first position id.

    >>> roberta_mappings(EncoderOnlyConfig(layers=1), 2)[2].hf_names
    ('roberta.embeddings.LayerNorm.weight',)
    """
    prefix, layer = roberta_prefix(model), PRE_NORM_LAYER if model.norm_order == "pre" else BERT_LAYER
    positions, segments = (f"{prefix}embeddings.{kind}_embeddings.weight" for kind in ("position", "token_type"))
    return [
        TensorMapping("encoder.embedding.weight", (f"{prefix}embeddings.word_embeddings.weight",)),
        *(
            [
                TensorMapping("encoder.embedding.positions.weight", (positions,), _shifted_positions(offset)),
                TensorMapping("encoder.embedding.segments", (segments,)),
            ]
            if model.segments
            else [TensorMapping("encoder.embedding.positions.weight", (positions, segments), _one_segment(offset))]
        ),
        *map_module("encoder.embedding.norm", f"{prefix}embeddings.LayerNorm"),
        *(
            entry
            for n in range(model.layers)
            for entry in with_prefixes(layer, f"encoder.layers.{n}.", f"{prefix}encoder.layer.{n}.")
        ),
        *(map_module("encoder.norm", f"{prefix}LayerNorm") if model.norm_order == "pre" else []),
        *(_pooling_mappings(model, prefix) if model.pooling == "first-dense" else []),
        *(ROBERTA_LM_HEAD if isinstance(model.head, TokenHeadConfig) else []),
        *label_head_mappings(model, TEXT_HEAD_OUTPUT if isinstance(model.head, ClassHeadConfig) else TOKEN_HEAD),
    ]


def _pooling_mappings(model: EncoderOnlyConfig, prefix: str) -> list[TensorMapping]:
    is_classifier = isinstance(model.head, ClassHeadConfig)
    return map_module("pooling.dense", TEXT_HEAD_DENSE if is_classifier else f"{prefix}pooler.dense")


def _shifted_positions(offset: int) -> TensorLayout:
    """A table whose first rows are not used."""
    return TensorLayout(
        lambda parts: parts[0][offset:].clone(),
        lambda whole, _: [_with_unused_rows(whole, offset)],
    )


def _one_segment(offset: int) -> TensorLayout:
    """The same, and the vector of the only segment, which is added to all rows."""
    return TensorLayout(
        lambda parts: parts[0][offset:] + parts[1],
        lambda whole, _: [_with_unused_rows(whole, offset), torch.zeros_like(whole[:1])],
    )


def _with_unused_rows(table: Tensor, count: int) -> Tensor:
    return torch.cat([table.new_zeros(count, table.shape[1]), table])


def import_roberta(folder: Path, config: HFConfig) -> ImportPlan:
    """Plan the import of a folder of one of these classes, or of sentence-transformers with one of them inside."""
    kind = str(config.get("model_type"))
    config.require("is_decoder", False, "RoBERTa is bidirectional")
    config.require("add_cross_attention", False, "RoBERTa has no cross-attention")
    config.require("position_embedding_type", "absolute", "RoBERTa has absolute positions")
    vocab_size, width = config.size("vocab_size", 50265), config.size("hidden_size", 768)
    pad = config.token("pad_token_id", 1, vocab_size)
    offset = (1 if pad is None else pad) + 1
    max_positions = config.size("max_position_embeddings", 512)
    if max_positions <= offset:
        raise config.error(
            "max_position_embeddings", f"leaves no positions, which start at pad_token_id + 1 = {offset}"
        )
    prefix = roberta_prefix(EncoderOnlyConfig(norm_order="pre" if kind == "roberta-prelayernorm" else "post"))
    embedding, pooler = f"{prefix}embeddings.word_embeddings.weight", f"{prefix}pooler.dense.weight"
    unsupported = {
        "lm_head.": UNTIED_OUTPUT,
        **UNSUPPORTED_HEADS,
        f"{prefix}pooler.": f"the head does not use it, or {POOLING_FILE} sets another pooling",
    }
    weights = read_weights(folder, prefix, tuple(unsupported))
    if embedding not in weights.tensors and "lm_head.decoder.weight" in weights.tensors:  # tied, under this name only
        weights.tensors[embedding] = weights.tensors.pop("lm_head.decoder.weight")
    pooling, notes = read_pooling(folder)
    epsilon = config.epsilon("layer_norm_eps", 1e-12)
    has_text_head = f"{TEXT_HEAD_DENSE}.weight" in weights.tensors
    head = import_label_head(
        config,
        weights,
        f"{TEXT_HEAD_OUTPUT if has_text_head else TOKEN_HEAD}.weight",
        can_pool=has_text_head,
        dropout=label_head_dropout(config, "hidden_dropout_prob"),
    )
    copies = {"lm_head.decoder.weight": embedding, "lm_head.decoder.bias": "lm_head.bias"}
    if take_tied_lm_head(weights, ROBERTA_LM_HEAD, copies):
        head = TokenHeadConfig(activation="gelu", norm_epsilon=epsilon)
    uses_dense = isinstance(head, ClassHeadConfig) or (pooling is None and pooler in weights.tensors)
    if isinstance(head, ClassHeadConfig):
        notes.append("For a pair of texts, RoBERTa has two end tokens between them, and regard one.")
    model = EncoderOnlyConfig(
        vocab_size=vocab_size,
        width=width,
        layers=config.layers("num_hidden_layers", 12),
        heads=config.heads("num_attention_heads", 12, "hidden_size", width),
        feed_forward=config.size("intermediate_size", 3072),
        activation=read_activation(config, "hidden_act", "gelu"),
        norm_order="pre" if kind == "roberta-prelayernorm" else "post",
        norm_epsilon=epsilon,
        embedding_norm=True,
        positions=LearnedPositionsConfig(max_length=max_positions - offset),
        dropout=config.probability("hidden_dropout_prob", 0.1),
        attention_dropout=config.probability("attention_probs_dropout_prob", 0.1),
        attention_bias=True,
        scale_embeddings=False,
        segments=segments if (segments := config.size("type_vocab_size", 2)) > 1 else 0,
        pooling="first-dense" if uses_dense else pooling or "first",
        head=head,
    )
    tokenizers = TOKENIZERS[kind](folder)
    tokens = _import_special_tokens(folder, config, vocab_size, tokenizers, notes)
    buffers = rf"{prefix}embeddings\.(position_ids|token_type_ids)".replace("roberta.", r"roberta\.")
    mappings = roberta_mappings(model, offset)
    return ImportPlan(model, tokens, mappings, weights, tokenizers, buffers, unsupported, notes)


def _import_special_tokens(
    folder: Path, config: HFConfig, vocab_size: int, tokenizers: ImportedTokenizers, notes: list[str]
) -> SpecialTokensConfig:
    """Return the special tokens; undefined ones get the ids of the original RoBERTa if these are in the vocabulary."""
    pad = token_or_default(config.token("pad_token_id", 1, vocab_size), 1, "the padding token", notes)
    names = special_token_names(folder, unk_token="<unk>", cls_token="<s>", sep_token="</s>", mask_token="<mask>")
    start, end = config.token("bos_token_id", 0, vocab_size), config.token("eos_token_id", 2, vocab_size)
    unknown = tokenizers.id_of(names["unk_token"])
    return SpecialTokensConfig(
        pad=pad,
        unknown=token_or_default(unknown, 3 if vocab_size > 3 else pad, "the unknown token", notes),
        start=_first(tokenizers.id_of(names["cls_token"]), start, pad),
        end=_first(tokenizers.id_of(names["sep_token"]), end, pad),
        mask=tokenizers.id_of(names["mask_token"]),
    )


def _first(*token_ids: int | None) -> int:
    return next(token_id for token_id in token_ids if token_id is not None)
