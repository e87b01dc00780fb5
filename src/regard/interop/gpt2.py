"""GPT-2 as a decoder-only network: pre-norm, learned positions, biases everywhere, one matrix at both ends."""

from pathlib import Path

from regard.config import DecoderOnlyConfig, LearnedPositionsConfig, SpecialTokensConfig
from regard.interop.family import Plan, activation, same, token_or
from regard.interop.mapping import TRANSPOSED, Row, module, under
from regard.interop.source import TheirSettings, Weights, read_weights
from regard.interop.tokenizers import Tokenizers, gpt2_tokenizer

EMBEDDING, OUTPUT = "transformer.wte.weight", "lm_head.weight"
ALSO_CALLED = {
    "n_embd": "hidden_size",
    "n_positions": "max_position_embeddings",
    "n_head": "num_attention_heads",
    "n_layer": "num_hidden_layers",
}
LAYER = [
    *module("attention_residual.norm", "ln_1"),
    *module("attention.query_key_value", "attn.c_attn", weight=TRANSPOSED),
    *module("attention.output", "attn.c_proj", weight=TRANSPOSED),
    *module("feed_forward_residual.norm", "ln_2"),
    *module("feed_forward.inner", "mlp.c_fc", weight=TRANSPOSED),
    *module("feed_forward.output", "mlp.c_proj", weight=TRANSPOSED),
]
MASKS = r"transformer\.h\.\d+\.attn\.(masked_)?bias"
HEADS = {
    "multiple_choice_head.": "regard's GPT has no head that chooses among texts",
    "score.": "regard's GPT has no head that classifies texts",
    "classifier.": "regard's GPT has no head that classifies tokens",
    "qa_outputs.": "regard's GPT has no head that finds answers",
}


def gpt2_table(model: DecoderOnlyConfig) -> list[Row]:
    """Our tensors and those of a `GPT2LMHeadModel`.

    >>> [(row.ours, row.theirs) for row in gpt2_table(DecoderOnly(layers=1))][0]
    ('decoder.embedding.weight', ('transformer.wte.weight',))
    """
    return [
        Row("decoder.embedding.weight", (EMBEDDING,)),
        Row("decoder.embedding.positions.weight", ("transformer.wpe.weight",)),
        *(row for n in range(model.layers) for row in under(LAYER, f"decoder.layers.{n}.", f"transformer.h.{n}.")),
        *module("decoder.norm", "transformer.ln_f"),
        *([] if model.tie_output else [Row("output.weight", (OUTPUT,))]),
    ]


def read_gpt2(folder: Path, settings: TheirSettings) -> Plan:
    """A folder that one of the GPT-2 classes was saved to."""
    settings = TheirSettings(settings.path, settings.values, ALSO_CALLED)
    settings.must_be("scale_attn_by_inverse_layer_idx", False, "layers all scale their scores alike")
    settings.must_be("add_cross_attention", False, "GPT looks at no other text")
    vocabulary, width = settings.size("vocab_size", 50257), settings.size("n_embd", 768)
    dropout, notes = settings.rate("resid_pdrop", 0.1), list[str]()
    if settings.rate("embd_pdrop", 0.1) != dropout:
        notes.append(f"embd_pdrop differs from resid_pdrop; if it is trained further, embeddings too drop {dropout}.")
    weights = read_weights(folder, "transformer.", (OUTPUT, *HEADS))
    model = DecoderOnlyConfig(
        vocab_size=vocabulary,
        width=width,
        layers=settings.layers("n_layer", 12),
        heads=settings.heads("n_head", 12, "n_embd", width),
        feed_forward=4 * width if settings.get("n_inner") is None else settings.size("n_inner", 4 * width),
        activation=activation(settings, "activation_function", "gelu_new"),
        norm_order="pre",
        norm_epsilon=settings.epsilon("layer_norm_epsilon", 1e-5),
        positions=LearnedPositionsConfig(max_length=settings.size("n_positions", 1024)),
        dropout=dropout,
        attention_dropout=settings.rate("attn_pdrop", 0.1),
        attention_bias=True,
        scale_embeddings=False,
        scale_scores=settings.flag("scale_attn_weights", True),
        tie_output=_shares_output(settings, weights, notes),
    )
    tokenizers = gpt2_tokenizer(folder)
    tokens = _special_tokens(settings, vocabulary, tokenizers, notes)
    return Plan(model, tokens, gpt2_table(model), weights, tokenizers, MASKS, HEADS, notes)


def _shares_output(settings: TheirSettings, weights: Weights, notes: list[str]) -> bool:
    """Whether the embedding matrix is the output projection: as the settings say, unless the tensors say otherwise."""
    tied, tensors = settings.flag("tie_word_embeddings", True), weights.tensors
    if OUTPUT not in tensors:
        if not tied:
            notes.append(f"The folder has no output projection ({OUTPUT}); the embedding matrix serves as one.")
        return True
    embedding = tensors.setdefault(EMBEDDING, tensors[OUTPUT]) if tied else None  # it may be stored as the output only
    if embedding is None or not same(embedding, tensors[OUTPUT]):
        return False
    del tensors[OUTPUT]
    return True


def _special_tokens(
    settings: TheirSettings, vocabulary: int, tokenizers: Tokenizers, notes: list[str]
) -> SpecialTokensConfig:
    """GPT-2 has one special token, the end of a text; it stands in for those that other models have."""
    end = settings.token("eos_token_id", 50256, vocabulary)
    if end is None:
        end = token_or(tokenizers.id_of("<|endoftext|>"), vocabulary - 1, "the end of a text", notes)
    start, pad = (settings.token(name, None, vocabulary) for name in ("bos_token_id", "pad_token_id"))
    return SpecialTokensConfig(
        pad=end if pad is None else pad, unknown=end, start=end if start is None else start, end=end
    )
