"""Import and export of BERT: an encoder with post-norm, learned positions, segments and normalized embeddings.

MegatronBert is the same with pre-norm: its embeddings are not normalized, and there is a norm after the last layer.

Heads: masked tokens (`BertForMaskedLM`), texts (`BertForSequenceClassification`) and words
(`BertForTokenClassification`); the latter two are one linear layer, `classifier`, on the pooled first token or on
each token.
"""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.config import (
    ClassHeadConfig,
    Config,
    EncoderOnlyConfig,
    LearnedPositionsConfig,
    SpecialTokensConfig,
    TokenHeadConfig,
)
from regard.interop.encoder_heads import (
    POOLING_FILE,
    UNSUPPORTED_HEADS,
    UNTIED_OUTPUT,
    has_label_head,
    import_label_head,
    is_token_classifier,
    label_head_config,
    label_head_dropout,
    label_head_mappings,
    pooling_files,
    read_pooling,
    take_tied_lm_head,
    text_pooling,
)
from regard.interop.hf_folder import HFConfig, read_weights
from regard.interop.hf_spec import (
    HFSpec,
    ImportPlan,
    TensorMapping,
    common_reasons,
    first_reason,
    hf_activation,
    map_module,
    read_activation,
    to_huggingface,
    to_tensors,
    token_or_default,
    with_prefixes,
)
from regard.interop.hf_tokenizers import ImportedTokenizers, bert_tokenizer, special_token_names
from regard.interop.weight_transforms import Arrays, add_zero_biases, equalize_head_widths, position_table

BERT_EMBEDDING, BERT_OUTPUT = "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
BERT_POOLER, BERT_CLASSIFIER = "bert.pooler.dense.weight", "classifier.weight"
BERT_LM_HEAD = [  # its output matrix is the embedding
    *map_module("head.dense", "cls.predictions.transform.dense"),
    *map_module("head.norm", "cls.predictions.transform.LayerNorm"),
    TensorMapping("head.output.bias", ("cls.predictions.bias",)),
]
BERT_COPIES = {BERT_OUTPUT: BERT_EMBEDDING, "cls.predictions.decoder.bias": "cls.predictions.bias"}
BERT_PROJECTIONS = [  # of a layer
    *map_module("attention.query_key_value", *(f"attention.self.{name}" for name in ("query", "key", "value"))),
    *map_module("attention.output", "attention.output.dense"),
    *map_module("feed_forward.inner", "intermediate.dense"),
    *map_module("feed_forward.output", "output.dense"),
]
BERT_LAYER = [
    *BERT_PROJECTIONS,
    *map_module("attention_residual.norm", "attention.output.LayerNorm"),
    *map_module("feed_forward_residual.norm", "output.LayerNorm"),
]
MEGATRON_LAYER = [
    *BERT_PROJECTIONS,
    *map_module("attention_residual.norm", "attention.ln"),
    *map_module("feed_forward_residual.norm", "ln"),
]
BERT_BUFFERS = r"bert\.embeddings\.(position_ids|token_type_ids)"
BERT_OLD_SUFFIXES = {".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"}
BERT_HEADS = {
    "cls.predictions.": UNTIED_OUTPUT,
    "cls.seq_relationship.": "regard's encoder has no next-sentence head",
    **UNSUPPORTED_HEADS,
    "bert.pooler.": f"{POOLING_FILE} sets another pooling",
}
MEGATRON = "megatron-bert"  # the `model_type` of BERT with pre-norm
BERT_SEGMENTS = 2  # of BERT tokenizers, whether or not the network has them


class DefaultSizes(NamedTuple):
    """The sizes that a `config.json` need not contain."""

    vocabulary: int
    width: int
    layers: int
    heads: int


BERT_SIZES, MEGATRON_SIZES = DefaultSizes(30522, 768, 12, 12), DefaultSizes(29056, 1024, 24, 16)


def bert_mappings(model: EncoderOnlyConfig) -> list[TensorMapping]:
    """Map our tensors to those of a `BertModel`, or with pre-norm a `MegatronBertModel`, inside a model with a head.

    >>> bert_mappings(EncoderOnlyConfig(layers=1, pooling="first-dense"))[-1].hf_names
    ('bert.pooler.dense.bias',)
    """
    is_pre_norm = model.norm_order == "pre"
    layer = MEGATRON_LAYER if is_pre_norm else BERT_LAYER
    return [
        TensorMapping("encoder.embedding.weight", (BERT_EMBEDDING,)),
        TensorMapping("encoder.embedding.positions.weight", ("bert.embeddings.position_embeddings.weight",)),
        TensorMapping("encoder.embedding.segments", ("bert.embeddings.token_type_embeddings.weight",)),
        *(map_module("encoder.embedding.norm", "bert.embeddings.LayerNorm") if model.embedding_norm else []),
        *(
            entry
            for n in range(model.layers)
            for entry in with_prefixes(layer, f"encoder.layers.{n}.", f"bert.encoder.layer.{n}.")
        ),
        *(map_module("encoder.norm", "bert.encoder.ln") if is_pre_norm else []),
        *(map_module("pooling.dense", "bert.pooler.dense") if model.pooling == "first-dense" else []),
        *(BERT_LM_HEAD if isinstance(model.head, TokenHeadConfig) else []),
        *label_head_mappings(model),
    ]


def import_bert(folder: Path, config: HFConfig) -> ImportPlan:
    """Plan the import of a folder of a BERT or MegatronBert class, or of sentence-transformers with one inside."""
    is_pre_norm = config.get("model_type") == MEGATRON
    default = MEGATRON_SIZES if is_pre_norm else BERT_SIZES
    config.require("is_decoder", False, "BERT is bidirectional")
    config.require("add_cross_attention", False, "BERT has no cross-attention")
    config.require("position_embedding_type", "absolute", "BERT has absolute positions")
    vocab_size, width = config.size("vocab_size", default.vocabulary), config.size("hidden_size", default.width)
    weights = read_weights(folder, "bert.", tuple(BERT_HEADS), BERT_OLD_SUFFIXES)
    if BERT_EMBEDDING not in weights.tensors and BERT_OUTPUT in weights.tensors:  # tied, and stored under this name
        weights.tensors[BERT_EMBEDDING] = weights.tensors.pop(BERT_OUTPUT)
    pooling, notes = read_pooling(folder)
    pooling = text_pooling(config) or pooling
    activation, epsilon = read_activation(config, "hidden_act", "gelu"), config.epsilon("layer_norm_eps", 1e-12)
    dropout = label_head_dropout(config, "hidden_dropout_prob")
    can_pool = BERT_POOLER in weights.tensors
    label_head = import_label_head(config, weights, BERT_CLASSIFIER, can_pool=can_pool, dropout=dropout)
    has_lm_head = take_tied_lm_head(weights, BERT_LM_HEAD, BERT_COPIES)
    model = EncoderOnlyConfig(
        vocab_size=vocab_size,
        width=width,
        layers=config.layers("num_hidden_layers", default.layers),
        heads=config.heads("num_attention_heads", default.heads, "hidden_size", width),
        feed_forward=config.size("intermediate_size", 4 * default.width),
        activation=activation,
        norm_epsilon=epsilon,
        norm_order="pre" if is_pre_norm else "post",
        embedding_norm=not is_pre_norm,
        positions=LearnedPositionsConfig(max_length=config.size("max_position_embeddings", 512)),
        dropout=config.probability("hidden_dropout_prob", 0.1),
        attention_dropout=config.probability("attention_probs_dropout_prob", 0.1),
        attention_bias=True,
        scale_embeddings=False,
        segments=config.size("type_vocab_size", 2),
        pooling=pooling or ("first-dense" if can_pool else "first"),
        head=TokenHeadConfig(activation=activation, norm_epsilon=epsilon) if has_lm_head else label_head,
    )
    tokenizers = bert_tokenizer(folder)
    tokens = bert_special_tokens(folder, config, vocab_size, tokenizers, notes)
    return ImportPlan(model, tokens, bert_mappings(model), weights, tokenizers, BERT_BUFFERS, BERT_HEADS, notes)


def bert_special_tokens(
    folder: Path, config: HFConfig, vocab_size: int, tokenizers: ImportedTokenizers, notes: list[str]
) -> SpecialTokensConfig:
    """Return the special tokens; undefined ones get the ids of the original BERT if these are in the vocabulary."""
    pad = token_or_default(config.token("pad_token_id", 0, vocab_size), 0, "the padding token", notes)
    names = special_token_names(folder, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]")
    unknown, start, end = (
        token_or_default(tokenizers.id_of(names[key]), default if default < vocab_size else pad, description, notes)
        for key, default, description in (
            ("unk_token", 100, "the unknown token"),
            ("cls_token", 101, "the start token"),
            ("sep_token", 102, "the end token"),
        )
    )
    mask = tokenizers.id_of(special_token_names(folder, mask_token="[MASK]")["mask_token"])
    return SpecialTokensConfig(pad=pad, unknown=unknown, start=start, end=end, mask=mask)


def unsupported_by_bert(model: EncoderOnlyConfig) -> str | None:
    """Return why BERT, or with pre-norm MegatronBert, cannot hold a network; None if it can."""
    is_pre_norm = model.norm_order == "pre"
    return first_reason(
        {
            **common_reasons(model, "BERT"),
            "MegatronBert does not normalize embeddings, and this network does": is_pre_norm and model.embedding_norm,
            "BERT normalizes embeddings, and this network does not": not is_pre_norm and not model.embedding_norm,
            **_lm_head_reasons(model),
            "BERT's dense layer for the first token has tanh, and this network's ReLU": model.pooling == "first-relu",
        }
    )


def _lm_head_reasons(model: EncoderOnlyConfig) -> dict[str, bool]:
    head = model.head
    if not isinstance(head, TokenHeadConfig):
        return {}
    return {
        f"BERT's head has the activation of its layers, {model.activation}, and this network's {head.activation}": (
            head.activation != model.activation
        ),
        f"BERT's head has the norm_epsilon of its layers, {model.norm_epsilon:g}, and this network's "
        f"{head.norm_epsilon:g}": head.norm_epsilon != model.norm_epsilon,
        "BERT's head has the model width, and this network's that of its embeddings, which are narrower": (
            model.embedding_width != model.width
        ),
    }


def export_bert(config: Config, model: EncoderOnlyConfig, arrays: Arrays) -> HFSpec:
    """Return the contents of a BERT folder; of a network with pre-norm a MegatronBert folder."""
    kind, prefix = (MEGATRON, "MegatronBert") if model.norm_order == "pre" else ("bert", "Bert")
    tokens, embedding = config.tokens, arrays["encoder.embedding.weight"]
    positions = position_table(arrays, "encoder", model)
    arrays = {"encoder.embedding.segments": np.zeros((BERT_SEGMENTS, model.width), embedding.dtype), **arrays}
    arrays = add_zero_biases(equalize_head_widths(arrays, model)) | {
        "encoder.embedding.weight": embedding * math.sqrt(model.width) if model.scale_embeddings else embedding,
        "encoder.embedding.positions.weight": positions,
    }
    has_lm_head = isinstance(model.head, TokenHeadConfig)
    if has_lm_head and model.scale_embeddings:  # BERT's output matrix is the scaled embedding: undo it in the head
        unscaled = {name: arrays[name] / math.sqrt(model.width) for name in ("head.norm.weight", "head.norm.bias")}
        arrays = {**arrays, **unscaled}
    notes = []
    label_config = label_head_config(model, prefix)
    if is_token_classifier(model):
        if isinstance(model.head, ClassHeadConfig):
            part = "the mean of those of its tokens" if model.pooling == "mean" else "those of its first token"
            notes.append(f"{prefix} has no text classifier without a dense layer: the logits of a text are {part}.")
        model = model.model_copy(update={"pooling": "first"})  # BertForTokenClassification has no pooler
    hf_tensors = to_huggingface(bert_mappings(model), to_tensors(arrays))
    hf_config = {
        "architectures": [f"{prefix}ForMaskedLM" if has_lm_head else f"{prefix}Model"],
        "model_type": kind,
        "vocab_size": model.vocab_size,
        "hidden_size": model.width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.feed_forward,
        "hidden_act": hf_activation(model),
        "layer_norm_eps": model.norm_epsilon,
        "max_position_embeddings": len(positions),
        "type_vocab_size": model.segments or BERT_SEGMENTS,
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": model.attention_dropout,
        "pad_token_id": tokens.pad,
        **label_config,
    }
    special = {"pad_token": tokens.pad, "unk_token": tokens.unknown, "cls_token": tokens.start, "sep_token": tokens.end}
    tokenizer_config = {
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "model_max_length": len(positions),
    }
    if tokens.mask is not None:
        special["mask_token"] = tokens.mask
    files: dict[str, object] = {}
    if not has_lm_head and not has_label_head(model):
        hf_tensors = {name.removeprefix("bert."): tensor for name, tensor in hf_tensors.items()}
        files = pooling_files(model.pooling, model.width)
    return HFSpec(
        hf_config,
        hf_tensors,
        (tokens.start,),
        (tokens.end,),
        special,
        tokenizer_config,
        files=files,
        notes=tuple(notes),
    )
