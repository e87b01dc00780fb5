"""BERT as an encoder-only network: post-norm, learned positions, segments, and a norm on the sum of the embeddings."""

import math
from pathlib import Path
from typing import Any

from regard.config import (
    ClassHeadConfig,
    Config,
    EncoderOnlyConfig,
    HeadConfig,
    LearnedPositionsConfig,
    NoHeadConfig,
    SpecialTokensConfig,
    TagHeadConfig,
    TokenHeadConfig,
)
from regard.interop.hf_folder import HFConfig, HFWeights, read_weights
from regard.interop.hf_spec import (
    HFSpec,
    ImportPlan,
    common_reasons,
    first_reason,
    hf_activation,
    read_activation,
    same_tensor,
    token_or_default,
)
from regard.interop.hf_tokenizers import ImportedTokenizers, bert_tokenizer, special_token_names
from regard.interop.sentence_transformers import MODULES_FILE, POOLING_FILE, POOLING_MODES, read_pooling
from regard.interop.tensor_mapping import TensorMapping, map_module, to_huggingface, with_prefixes
from regard.interop.weight_transforms import Tensors, add_zero_biases, equalize_head_widths, position_table

BERT_EMBEDDING, BERT_OUTPUT = "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
BERT_POOLER = "bert.pooler.dense.weight"
BERT_LM_HEAD = [  # the head that guesses masked words; its matrix is the embedding
    *map_module("head.dense", "cls.predictions.transform.dense"),
    *map_module("head.norm", "cls.predictions.transform.LayerNorm"),
    TensorMapping("head.output.bias", ("cls.predictions.bias",)),
]
BERT_LAYER = [
    *map_module("attention.query_key_value", *(f"attention.self.{name}" for name in ("query", "key", "value"))),
    *map_module("attention.output", "attention.output.dense"),
    *map_module("attention_residual.norm", "attention.output.LayerNorm"),
    *map_module("feed_forward.inner", "intermediate.dense"),
    *map_module("feed_forward.output", "output.dense"),
    *map_module("feed_forward_residual.norm", "output.LayerNorm"),
]
BERT_BUFFERS = r"bert\.embeddings\.(position_ids|token_type_ids)"
BERT_OLD_NAMES = {".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"}
BERT_HEADS = {
    "cls.predictions.": "regard's encoder guesses masked words with its embedding matrix, and this one has another",
    "cls.seq_relationship.": "regard's encoder has no head that guesses the next sentence",
    "classifier.": "regard's encoder has no head that classifies so",
    "qa_outputs.": "regard's encoder has no head that finds answers",
    "bert.pooler.": f"{POOLING_FILE} asks for another pooling",
}


def bert_mappings(model: EncoderOnlyConfig) -> list[TensorMapping]:
    """Our tensors and those of a `BertModel` inside a model with a head.

    >>> bert_mappings(EncoderOnlyConfig(layers=1, pooling="first-dense"))[-1].theirs
    ('bert.pooler.dense.bias',)
    """
    return [
        TensorMapping("encoder.embedding.weight", (BERT_EMBEDDING,)),
        TensorMapping("encoder.embedding.positions.weight", ("bert.embeddings.position_embeddings.weight",)),
        TensorMapping("encoder.embedding.segments", ("bert.embeddings.token_type_embeddings.weight",)),
        *map_module("encoder.embedding.norm", "bert.embeddings.LayerNorm"),
        *(
            row
            for n in range(model.layers)
            for row in with_prefixes(BERT_LAYER, f"encoder.layers.{n}.", f"bert.encoder.layer.{n}.")
        ),
        *(map_module("pooling.dense", "bert.pooler.dense") if model.pooling == "first-dense" else []),
        *(BERT_LM_HEAD if isinstance(model.head, TokenHeadConfig) else []),
        *label_head_mappings(model),
    ]


def import_bert(folder: Path, settings: HFConfig) -> ImportPlan:
    """A folder that one of the BERT classes, or sentence-transformers with a BERT inside, was saved to."""
    settings.must_be("is_decoder", False, "BERT looks both ways")
    settings.must_be("add_cross_attention", False, "BERT looks at no other text")
    settings.must_be("position_embedding_type", "absolute", "BERT has absolute positions")
    vocabulary, width = settings.size("vocab_size", 30522), settings.size("hidden_size", 768)
    weights = read_weights(folder, "bert.", tuple(BERT_HEADS), BERT_OLD_NAMES)
    if (
        BERT_EMBEDDING not in weights.tensors and BERT_OUTPUT in weights.tensors
    ):  # tied, and stored under its other name
        weights.tensors[BERT_EMBEDDING] = weights.tensors.pop(BERT_OUTPUT)
    pooling, notes = read_pooling(folder)
    inner, epsilon = read_activation(settings, "hidden_act", "gelu"), settings.epsilon("layer_norm_eps", 1e-12)
    labels = import_label_head(settings, weights)
    model = EncoderOnlyConfig(
        vocab_size=vocabulary,
        width=width,
        layers=settings.layers("num_hidden_layers", 12),
        heads=settings.heads("num_attention_heads", 12, "hidden_size", width),
        feed_forward=settings.size("intermediate_size", 3072),
        activation=inner,
        norm_epsilon=epsilon,
        embedding_norm=True,
        positions=LearnedPositionsConfig(max_length=settings.size("max_position_embeddings", 512)),
        dropout=settings.rate("hidden_dropout_prob", 0.1),
        attention_dropout=settings.rate("attention_probs_dropout_prob", 0.1),
        attention_bias=True,
        scale_embeddings=False,
        segments=settings.size("type_vocab_size", 2),
        pooling=pooling or ("first-dense" if BERT_POOLER in weights.tensors else "first"),
        head=TokenHeadConfig(activation=inner, norm_epsilon=epsilon) if _has_lm_head(weights) else labels,
    )
    tokenizers = bert_tokenizer(folder)
    tokens = _bert_special_tokens(folder, settings, vocabulary, tokenizers, notes)
    return ImportPlan(model, tokens, bert_mappings(model), weights, tokenizers, BERT_BUFFERS, BERT_HEADS, notes)


def _has_lm_head(weights: HFWeights) -> bool:
    """Whether there is a head that guesses masked words, all of it, by the embedding; second copies are put away."""
    tensors = weights.tensors
    if not all(name in tensors for row in BERT_LM_HEAD for name in row.theirs):
        return False
    for copy, original in ((BERT_OUTPUT, BERT_EMBEDDING), ("cls.predictions.decoder.bias", "cls.predictions.bias")):
        if copy in tensors and not same_tensor(tensors[copy], tensors.get(original, tensors[copy])):
            return False
    for copy in (BERT_OUTPUT, "cls.predictions.decoder.bias"):
        tensors.pop(copy, None)
    return True


def _bert_special_tokens(
    folder: Path, settings: HFConfig, vocabulary: int, tokenizers: ImportedTokenizers, notes: list[str]
) -> SpecialTokensConfig:
    """Where the folder does not tell, those that BERT was published with; the pad where even these are too high."""
    pad = token_or_default(settings.token("pad_token_id", 0, vocabulary), 0, "the pad", notes)
    names = special_token_names(folder, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]")
    unknown, start, end = (
        token_or_default(tokenizers.id_of(names[key]), usual if usual < vocabulary else pad, what, notes)
        for key, usual, what in (
            ("unk_token", 100, "the unknown one"),
            ("cls_token", 101, "the first of a text"),
            ("sep_token", 102, "the end of a text"),
        )
    )
    mask = tokenizers.id_of(special_token_names(folder, mask_token="[MASK]")["mask_token"])
    return SpecialTokensConfig(pad=pad, unknown=unknown, start=start, end=end, mask=mask)


BERT_SEGMENTS = 2  # that tokenizers of BERT tell apart, whether or not the network does


def unsupported_by_bert(model: EncoderOnlyConfig) -> str | None:
    """Why BERT cannot hold a network; None if it can."""
    return first_reason(
        {
            "BERT normalises after each sub-layer, and this network before": model.norm_order == "pre",
            **common_reasons(model, "BERT"),
            "BERT normalises embeddings, and this network does not": not model.embedding_norm,
            **_head_reasons(model),
            "BERT classifies the first token through a dense layer, and this network pools otherwise": (
                isinstance(model.head, ClassHeadConfig) and model.pooling != "first-dense"
            ),
        }
    )


def _head_reasons(model: EncoderOnlyConfig) -> dict[str, bool]:
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


def export_bert(config: Config, model: EncoderOnlyConfig, tensors: Tensors) -> HFSpec:
    """The network in BERT's terms."""
    tokens, embedding = config.tokens, tensors["encoder.embedding.weight"]
    positions = position_table(tensors, "encoder", model)
    tensors = {"encoder.embedding.segments": embedding.new_zeros(BERT_SEGMENTS, model.width), **tensors}
    tensors = add_zero_biases(equalize_head_widths(tensors, model)) | {
        "encoder.embedding.weight": embedding * math.sqrt(model.width) if model.scale_embeddings else embedding,
        "encoder.embedding.positions.weight": positions,
    }
    guesses = isinstance(model.head, TokenHeadConfig)
    if guesses and model.scale_embeddings:  # their output matrix is the embedding that is written larger
        smaller = {name: tensors[name] / math.sqrt(model.width) for name in ("head.norm.weight", "head.norm.bias")}
        tensors = {**tensors, **smaller}
    if isinstance(model.head, TagHeadConfig):
        model = model.model_copy(update={"pooling": "first"})  # their tagger has none
    theirs = to_huggingface(bert_mappings(model), tensors)
    settings = {
        "architectures": ["BertForMaskedLM" if guesses else "BertModel"],
        "model_type": "bert",
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
        **label_head_config(model),
    }
    special = {"pad_token": tokens.pad, "unk_token": tokens.unknown, "cls_token": tokens.start, "sep_token": tokens.end}
    tokenizer = {
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "model_max_length": len(positions),
    }
    if tokens.mask is not None:
        special["mask_token"] = tokens.mask
    if guesses or label_head_mappings(model):
        return HFSpec(settings, theirs, (tokens.start,), (tokens.end,), special, tokenizer)
    bare = {name.removeprefix("bert."): tensor for name, tensor in theirs.items()}
    return HFSpec(settings, bare, (tokens.start,), (tokens.end,), special, tokenizer, files=_pooling(model))


def _pooling(model: EncoderOnlyConfig) -> dict[str, object]:
    """The files of sentence-transformers; none for BERT's own pooling, which is among its tensors."""
    mode = next((theirs for theirs, ours in POOLING_MODES.items() if ours == model.pooling), None)
    if mode is None:
        return {}
    kinds = {"": "Transformer", POOLING_FILE.partition("/")[0]: "Pooling"}
    return {
        POOLING_FILE: {"pooling_mode": mode, "embedding_dimension": model.width},
        MODULES_FILE: [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for number, (path, kind) in enumerate(kinds.items())
        ],
    }


BERT_CLASSIFIER, BERT_POOLER_WEIGHT = "classifier.weight", "bert.pooler.dense.weight"
TEXT_CLASSIFIER, TOKEN_CLASSIFIER = "BertForSequenceClassification", "BertForTokenClassification"


def label_head_mappings(model: EncoderOnlyConfig) -> list[TensorMapping]:
    """Our tensors and theirs of such a head, if there is one."""
    return map_module("head.dense", "classifier") if isinstance(model.head, ClassHeadConfig | TagHeadConfig) else []


def import_label_head(settings: HFConfig, weights: HFWeights) -> HeadConfig:
    """The head of a folder of theirs, if it labels texts or words, one label each."""
    classes = settings.get("architectures")
    kinds = classes if isinstance(classes, list) else []
    classifier = weights.tensors.get(BERT_CLASSIFIER)
    one_label = settings.get("problem_type") in (None, "single_label_classification")
    if classifier is None or classifier.dim() != 2 or len(classifier) < 2 or not one_label:
        return NoHeadConfig()
    about: dict[str, Any] = {"labels": _labels(settings.get("id2label"), len(classifier))}
    about["dropout"] = settings.rate(
        "classifier_dropout" if settings.get("classifier_dropout") is not None else "hidden_dropout_prob", 0.1
    )
    if TEXT_CLASSIFIER in kinds and BERT_POOLER_WEIGHT in weights.tensors:
        return ClassHeadConfig(**about)
    return TagHeadConfig(**about) if TOKEN_CLASSIFIER in kinds else NoHeadConfig()


def _labels(named: Any, count: int) -> tuple[str, ...]:
    """What the labels are called; by their numbers, where the folder does not tell, or tells them apart badly."""
    names = [named.get(str(n)) for n in range(count)] if isinstance(named, dict) else []
    called = [name for name in names if isinstance(name, str)]
    return tuple(called) if len(set(called)) == count else tuple(f"LABEL_{n}" for n in range(count))


def label_head_config(model: EncoderOnlyConfig) -> dict[str, Any]:
    """What their `config.json` says of such a head; nothing where there is none."""
    head = model.head
    if not isinstance(head, ClassHeadConfig | TagHeadConfig):
        return {}
    return {
        "architectures": [TEXT_CLASSIFIER if isinstance(head, ClassHeadConfig) else TOKEN_CLASSIFIER],
        "id2label": {str(n): label for n, label in enumerate(head.labels)},
        "label2id": {label: n for n, label in enumerate(head.labels)},
        "classifier_dropout": head.dropout,
    }
