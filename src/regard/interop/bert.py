"""BERT as an encoder-only network: post-norm, learned positions, segments, and a norm on the sum of the embeddings."""

from pathlib import Path

from regard.config import EncoderOnlyConfig, LearnedPositionsConfig, SpecialTokensConfig, TokenHeadConfig
from regard.interop.bert_labels import label_rows, read_label_head
from regard.interop.family import Plan, activation, same, token_or
from regard.interop.mapping import Row, module, under
from regard.interop.sentence_transformers import POOLING, read_pooling
from regard.interop.source import TheirSettings, Weights, read_weights
from regard.interop.tokenizers import Tokenizers, bert_tokenizer, special_names

EMBEDDING, OUTPUT = "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
POOLER = "bert.pooler.dense.weight"
GUESSES = [  # the head that guesses masked words; its matrix is the embedding
    *module("head.dense", "cls.predictions.transform.dense"),
    *module("head.norm", "cls.predictions.transform.LayerNorm"),
    Row("head.output.bias", ("cls.predictions.bias",)),
]
LAYER = [
    *module("attention.query_key_value", *(f"attention.self.{name}" for name in ("query", "key", "value"))),
    *module("attention.output", "attention.output.dense"),
    *module("attention_residual.norm", "attention.output.LayerNorm"),
    *module("feed_forward.inner", "intermediate.dense"),
    *module("feed_forward.output", "output.dense"),
    *module("feed_forward_residual.norm", "output.LayerNorm"),
]
COUNTERS = r"bert\.embeddings\.(position_ids|token_type_ids)"
OLD_NAMES = {".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"}
HEADS = {
    "cls.predictions.": "regard's encoder guesses masked words with its embedding matrix, and this one has another",
    "cls.seq_relationship.": "regard's encoder has no head that guesses the next sentence",
    "classifier.": "regard's encoder has no head that classifies so",
    "qa_outputs.": "regard's encoder has no head that finds answers",
    "bert.pooler.": f"{POOLING} asks for another pooling",
}


def bert_table(model: EncoderOnlyConfig) -> list[Row]:
    """Our tensors and those of a `BertModel` inside a model with a head.

    >>> bert_table(EncoderOnly(layers=1, pooling="first-dense"))[-1].theirs
    ('bert.pooler.dense.bias',)
    """
    return [
        Row("encoder.embedding.weight", (EMBEDDING,)),
        Row("encoder.embedding.positions.weight", ("bert.embeddings.position_embeddings.weight",)),
        Row("encoder.embedding.segments", ("bert.embeddings.token_type_embeddings.weight",)),
        *module("encoder.embedding.norm", "bert.embeddings.LayerNorm"),
        *(row for n in range(model.layers) for row in under(LAYER, f"encoder.layers.{n}.", f"bert.encoder.layer.{n}.")),
        *(module("pooling.dense", "bert.pooler.dense") if model.pooling == "first-dense" else []),
        *(GUESSES if isinstance(model.head, TokenHeadConfig) else []),
        *label_rows(model),
    ]


def read_bert(folder: Path, settings: TheirSettings) -> Plan:
    """A folder that one of the BERT classes, or sentence-transformers with a BERT inside, was saved to."""
    settings.must_be("is_decoder", False, "BERT looks both ways")
    settings.must_be("add_cross_attention", False, "BERT looks at no other text")
    settings.must_be("position_embedding_type", "absolute", "BERT has absolute positions")
    vocabulary, width = settings.size("vocab_size", 30522), settings.size("hidden_size", 768)
    weights = read_weights(folder, "bert.", tuple(HEADS), OLD_NAMES)
    if EMBEDDING not in weights.tensors and OUTPUT in weights.tensors:  # tied, and stored under its other name
        weights.tensors[EMBEDDING] = weights.tensors.pop(OUTPUT)
    pooling, notes = read_pooling(folder)
    inner, epsilon = activation(settings, "hidden_act", "gelu"), settings.epsilon("layer_norm_eps", 1e-12)
    labels = read_label_head(settings, weights)
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
        pooling=pooling or ("first-dense" if POOLER in weights.tensors else "first"),
        head=TokenHeadConfig(activation=inner, norm_epsilon=epsilon) if _guesses_words(weights) else labels,
    )
    tokenizers = bert_tokenizer(folder)
    tokens = _special_tokens(folder, settings, vocabulary, tokenizers, notes)
    return Plan(model, tokens, bert_table(model), weights, tokenizers, COUNTERS, HEADS, notes)


def _guesses_words(weights: Weights) -> bool:
    """Whether there is a head that guesses masked words, all of it, by the embedding; second copies are put away."""
    tensors = weights.tensors
    if not all(name in tensors for row in GUESSES for name in row.theirs):
        return False
    for copy, original in ((OUTPUT, EMBEDDING), ("cls.predictions.decoder.bias", "cls.predictions.bias")):
        if copy in tensors and not same(tensors[copy], tensors.get(original, tensors[copy])):
            return False
    for copy in (OUTPUT, "cls.predictions.decoder.bias"):
        tensors.pop(copy, None)
    return True


def _special_tokens(
    folder: Path, settings: TheirSettings, vocabulary: int, tokenizers: Tokenizers, notes: list[str]
) -> SpecialTokensConfig:
    """Where the folder does not tell, those that BERT was published with; the pad where even these are too high."""
    pad = token_or(settings.token("pad_token_id", 0, vocabulary), 0, "the pad", notes)
    names = special_names(folder, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]")
    unknown, start, end = (
        token_or(tokenizers.id_of(names[key]), usual if usual < vocabulary else pad, what, notes)
        for key, usual, what in (
            ("unk_token", 100, "the unknown one"),
            ("cls_token", 101, "the first of a text"),
            ("sep_token", 102, "the end of a text"),
        )
    )
    mask = tokenizers.id_of(special_names(folder, mask_token="[MASK]")["mask_token"])
    return SpecialTokensConfig(pad=pad, unknown=unknown, start=start, end=end, mask=mask)
