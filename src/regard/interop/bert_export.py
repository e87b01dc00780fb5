"""An encoder-only network as a `BertModel` or a `BertForMaskedLM`; for sentence-transformers, how it pools too."""

import math

from regard.config import ClassHeadConfig, Config, EncoderOnlyConfig, TagHeadConfig, TokenHeadConfig
from regard.interop.bert import bert_table
from regard.interop.bert_labels import label_rows, label_settings
from regard.interop.equivalents import Tensors, even_heads, position_table, with_all_biases
from regard.interop.mapping import to_theirs
from regard.interop.sentence_transformers import MODULES, OURS, POOLING
from regard.interop.theirs import Theirs, first_that_holds, their_activation, what_no_class_holds

SEGMENTS = 2  # that tokenizers of BERT tell apart, whether or not the network does


def why_not_bert(model: EncoderOnlyConfig) -> str | None:
    """Why BERT cannot hold a network; None if it can."""
    return first_that_holds(
        {
            "BERT normalises after each sub-layer, and this network before": model.norm_order == "pre",
            **what_no_class_holds(model, "BERT"),
            "BERT normalises embeddings, and this network does not": not model.embedding_norm,
            **_what_the_head_hinders(model),
            "BERT classifies the first token through a dense layer, and this network pools otherwise": (
                isinstance(model.head, ClassHeadConfig) and model.pooling != "first-dense"
            ),
        }
    )


def _what_the_head_hinders(model: EncoderOnlyConfig) -> dict[str, bool]:
    head = model.head
    if not isinstance(head, TokenHeadConfig):
        return {}
    return {
        f"BERT's head has the activation of its layers, {model.activation}, and this network's {head.activation}": (
            head.activation != model.activation
        ),
        f"BERT's head has the norm_epsilon of its layers, {model.norm_epsilon:g}, and this network's "
        f"{head.norm_epsilon:g}": head.norm_epsilon != model.norm_epsilon,
    }


def to_bert(config: Config, model: EncoderOnlyConfig, tensors: Tensors) -> Theirs:
    """The network in BERT's terms."""
    tokens, embedding = config.tokens, tensors["encoder.embedding.weight"]
    positions = position_table(tensors, "encoder", model)
    tensors = {"encoder.embedding.segments": embedding.new_zeros(SEGMENTS, model.width), **tensors}
    tensors = with_all_biases(even_heads(tensors, model)) | {
        "encoder.embedding.weight": embedding * math.sqrt(model.width) if model.scale_embeddings else embedding,
        "encoder.embedding.positions.weight": positions,
    }
    guesses = isinstance(model.head, TokenHeadConfig)
    if guesses and model.scale_embeddings:  # their output matrix is the embedding that is written larger
        smaller = {name: tensors[name] / math.sqrt(model.width) for name in ("head.norm.weight", "head.norm.bias")}
        tensors = {**tensors, **smaller}
    if isinstance(model.head, TagHeadConfig):
        model = model.model_copy(update={"pooling": "first"})  # their tagger has none
    theirs = to_theirs(bert_table(model), tensors)
    settings = {
        "architectures": ["BertForMaskedLM" if guesses else "BertModel"],
        "model_type": "bert",
        "vocab_size": model.vocab_size,
        "hidden_size": model.width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.feed_forward,
        "hidden_act": their_activation(model),
        "layer_norm_eps": model.norm_epsilon,
        "max_position_embeddings": len(positions),
        "type_vocab_size": model.segments or SEGMENTS,
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": model.attention_dropout,
        "pad_token_id": tokens.pad,
        **label_settings(model),
    }
    special = {"pad_token": tokens.pad, "unk_token": tokens.unknown, "cls_token": tokens.start, "sep_token": tokens.end}
    tokenizer = {
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "model_max_length": len(positions),
    }
    if tokens.mask is not None:
        special["mask_token"] = tokens.mask
    if guesses or label_rows(model):
        return Theirs(settings, theirs, (tokens.start,), (tokens.end,), special, tokenizer)
    bare = {name.removeprefix("bert."): tensor for name, tensor in theirs.items()}
    return Theirs(settings, bare, (tokens.start,), (tokens.end,), special, tokenizer, files=_pooling(model))


def _pooling(model: EncoderOnlyConfig) -> dict[str, object]:
    """The files of sentence-transformers; none for BERT's own pooling, which is among its tensors."""
    mode = next((theirs for theirs, ours in OURS.items() if ours == model.pooling), None)
    if mode is None:
        return {}
    kinds = {"": "Transformer", POOLING.partition("/")[0]: "Pooling"}
    return {
        POOLING: {"pooling_mode": mode, "embedding_dimension": model.width},
        MODULES: [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for number, (path, kind) in enumerate(kinds.items())
        ],
    }
