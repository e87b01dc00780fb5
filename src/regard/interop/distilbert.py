"""Import of DistilBERT: a BERT without segments and pooler, whose settings and tensors have other names.

Its text classifier puts the first token through a dense layer with ReLU, where that of BERT has tanh.
"""

from pathlib import Path

from regard.config import ClassHeadConfig, EncoderOnlyConfig, LearnedPositionsConfig, TokenHeadConfig
from regard.interop.bert import bert_special_tokens
from regard.interop.encoder_heads import (
    UNSUPPORTED_HEADS,
    UNTIED_OUTPUT,
    import_label_head,
    label_head_mappings,
    read_pooling,
    take_tied_lm_head,
)
from regard.interop.hf_folder import HFConfig, read_weights
from regard.interop.hf_spec import ImportPlan, TensorMapping, map_module, read_activation, with_prefixes
from regard.interop.hf_tokenizers import bert_tokenizer

DISTILBERT_EPSILON = 1e-12  # of all norms; not a setting
DISTILBERT_ALIASES = {"dim": "hidden_size", "n_heads": "num_attention_heads", "n_layers": "num_hidden_layers"}
DISTILBERT_EMBEDDING, DISTILBERT_OUTPUT = "distilbert.embeddings.word_embeddings.weight", "vocab_projector.weight"
DISTILBERT_LM_HEAD = [  # its output matrix is the embedding
    *map_module("head.dense", "vocab_transform"),
    *map_module("head.norm", "vocab_layer_norm"),
    TensorMapping("head.output.bias", ("vocab_projector.bias",)),
]
DISTILBERT_LAYER = [
    *map_module("attention.query_key_value", *(f"attention.{name}_lin" for name in "qkv")),
    *map_module("attention.output", "attention.out_lin"),
    *map_module("attention_residual.norm", "sa_layer_norm"),
    *map_module("feed_forward.inner", "ffn.lin1"),
    *map_module("feed_forward.output", "ffn.lin2"),
    *map_module("feed_forward_residual.norm", "output_layer_norm"),
]
DISTILBERT_BUFFERS = r"distilbert\.embeddings\.position_ids"
DISTILBERT_HEADS = {
    **dict.fromkeys(("vocab_transform.", "vocab_layer_norm.", "vocab_projector."), UNTIED_OUTPUT),
    "pre_classifier.": UNSUPPORTED_HEADS["classifier."],
    **UNSUPPORTED_HEADS,
}


def distilbert_mappings(model: EncoderOnlyConfig) -> list[TensorMapping]:
    """Map our tensors to those of a `DistilBertModel` inside a model with a head.

    >>> distilbert_mappings(EncoderOnlyConfig(layers=1, pooling="first-relu"))[-1].hf_names
    ('pre_classifier.bias',)
    """
    return [
        TensorMapping("encoder.embedding.weight", (DISTILBERT_EMBEDDING,)),
        TensorMapping("encoder.embedding.positions.weight", ("distilbert.embeddings.position_embeddings.weight",)),
        *map_module("encoder.embedding.norm", "distilbert.embeddings.LayerNorm"),
        *(
            entry
            for n in range(model.layers)
            for entry in with_prefixes(DISTILBERT_LAYER, f"encoder.layers.{n}.", f"distilbert.transformer.layer.{n}.")
        ),
        *(map_module("pooling.dense", "pre_classifier") if model.pooling == "first-relu" else []),
        *(DISTILBERT_LM_HEAD if isinstance(model.head, TokenHeadConfig) else []),
        *label_head_mappings(model),
    ]


def import_distilbert(folder: Path, config: HFConfig) -> ImportPlan:
    """Plan the import of a folder of a DistilBERT class, or of sentence-transformers with one inside."""
    config = HFConfig(config.path, config.values, DISTILBERT_ALIASES)
    vocab_size, width = config.size("vocab_size", 30522), config.size("dim", 768)
    weights = read_weights(folder, "distilbert.", tuple(DISTILBERT_HEADS))
    if DISTILBERT_EMBEDDING not in weights.tensors and DISTILBERT_OUTPUT in weights.tensors:
        weights.tensors[DISTILBERT_EMBEDDING] = weights.tensors.pop(DISTILBERT_OUTPUT)
    pooling, notes = read_pooling(folder)
    activation = read_activation(config, "activation", "gelu")
    can_pool = "pre_classifier.weight" in weights.tensors
    head = import_label_head(
        config,
        weights,
        "classifier.weight",
        can_pool=can_pool,
        dropout="seq_classif_dropout" if can_pool else "dropout",
    )
    if take_tied_lm_head(weights, DISTILBERT_LM_HEAD, {DISTILBERT_OUTPUT: DISTILBERT_EMBEDDING}):
        head = TokenHeadConfig(activation=activation, norm_epsilon=DISTILBERT_EPSILON)
    model = EncoderOnlyConfig(
        vocab_size=vocab_size,
        width=width,
        layers=config.layers("n_layers", 6),
        heads=config.heads("n_heads", 12, "dim", width),
        feed_forward=config.size("hidden_dim", 3072),
        activation=activation,
        norm_epsilon=DISTILBERT_EPSILON,
        embedding_norm=True,
        positions=LearnedPositionsConfig(max_length=config.size("max_position_embeddings", 512)),
        dropout=config.probability("dropout", 0.1),
        attention_dropout=config.probability("attention_dropout", 0.1),
        attention_bias=True,
        scale_embeddings=False,
        pooling="first-relu" if isinstance(head, ClassHeadConfig) else pooling or "first",
        head=head,
    )
    tokenizers = bert_tokenizer(folder, "DistilBertTokenizer")
    tokens = bert_special_tokens(folder, config, vocab_size, tokenizers, notes)
    mappings = distilbert_mappings(model)
    return ImportPlan(model, tokens, mappings, weights, tokenizers, DISTILBERT_BUFFERS, DISTILBERT_HEADS, notes)
