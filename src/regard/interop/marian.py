"""Marian (OPUS-MT) as an encoder-decoder network: the paper's, with swish, biases and sinusoids in halves."""

from pathlib import Path

import torch
from torch import Tensor

from regard.config import EncoderDecoderConfig, SinusoidalPositionsConfig, SpecialTokensConfig
from regard.errors import ModelError
from regard.interop.family import Plan, activation, same, token_or
from regard.interop.mapping import ONE_ROW, Row, module, under
from regard.interop.source import TheirSettings, Weights, read_weights
from regard.interop.tokenizers import special_names
from regard.interop.unigram import marian_tokenizers
from regard.nn import sinusoidal_table

SHARED, OUTPUT, BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
SOURCE, TARGET = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
POSITIONS = r"model\.(en|de)coder\.embed_positions\.weight"
ENCODER_LAYER = [
    *module("attention.query_key_value", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    *module("attention.output", "self_attn.out_proj"),
    *module("attention_residual.norm", "self_attn_layer_norm"),
    *module("feed_forward.inner", "fc1"),
    *module("feed_forward.output", "fc2"),
    *module("feed_forward_residual.norm", "final_layer_norm"),
]
DECODER_LAYER = [
    *ENCODER_LAYER,
    *module("cross_attention.query", "encoder_attn.q_proj"),
    *module("cross_attention.key_value", "encoder_attn.k_proj", "encoder_attn.v_proj"),
    *module("cross_attention.output", "encoder_attn.out_proj"),
    *module("cross_attention_residual.norm", "encoder_attn_layer_norm"),
]


def marian_table(model: EncoderDecoderConfig) -> list[Row]:
    """Our tensors and those of a `MarianMTModel`.

    >>> [row.theirs for row in marian_table(EncoderDecoder(layers=1, share_embeddings=False))[:2]]
    [('model.encoder.embed_tokens.weight',), ('model.decoder.embed_tokens.weight',)]
    """
    shared = [Row("encoder.embedding.weight", (SHARED,))]
    separate = [Row("encoder.embedding.weight", (SOURCE,)), Row("decoder.embedding.weight", (TARGET,))]
    return [
        *(shared if model.share_embeddings else separate),
        *_layers("encoder", ENCODER_LAYER, model.layers),
        *_layers("decoder", DECODER_LAYER, model.decoder_layers or model.layers),
        *([] if model.tie_output else [Row("output.weight", (OUTPUT,))]),
        *([Row("output.bias", (BIAS,), ONE_ROW)] if model.output_bias else []),
    ]


def _layers(stack: str, layer: list[Row], count: int) -> list[Row]:
    return [row for n in range(count) for row in under(layer, f"{stack}.layers.{n}.", f"model.{stack}.layers.{n}.")]


def read_marian(folder: Path, settings: TheirSettings) -> Plan:
    """A folder that one of the Marian classes was saved to."""
    _refuse(settings)
    vocabulary, width = settings.size("vocab_size", 58101), settings.size("d_model", 1024)
    layers, decoder_layers = settings.layers("encoder_layers", 12), settings.layers("decoder_layers", 12)
    weights, notes = read_weights(folder, "model.", (OUTPUT, BIAS)), list[str]()
    share_embeddings, share_output = _settle_embeddings(settings, weights, notes)
    target_vocabulary = vocabulary
    if not share_embeddings and settings.get("decoder_vocab_size") is not None:
        target_vocabulary = settings.size("decoder_vocab_size", vocabulary)
    _check_positions(weights, width)
    model = EncoderDecoderConfig(
        vocab_size=vocabulary,
        width=width,
        layers=layers,
        heads=settings.heads("encoder_attention_heads", 16, "d_model", width),
        feed_forward=settings.size("encoder_ffn_dim", 4096),
        activation=activation(settings, "activation_function", "gelu"),
        positions=SinusoidalPositionsConfig(layout="halves"),
        dropout=settings.rate("dropout", 0.1),
        attention_dropout=settings.rate("attention_dropout", 0.0),
        activation_dropout=settings.rate("activation_dropout", 0.0),
        attention_bias=True,
        scale_embeddings=settings.flag("scale_embedding", False),
        tie_output=share_output,
        output_bias=BIAS in weights.tensors,
        decoder_layers=None if decoder_layers == layers else decoder_layers,
        share_embeddings=share_embeddings,
        target_vocab_size=None if target_vocabulary == vocabulary else target_vocabulary,
    )
    tokenizers = marian_tokenizers(folder)
    unknown = tokenizers.id_of(special_names(folder, unk_token="<unk>")["unk_token"])
    tokens = _special_tokens(settings, target_vocabulary, unknown, notes)
    unused = {SHARED: "encoder and decoder have embeddings of their own"}
    return Plan(model, tokens, marian_table(model), weights, tokenizers, POSITIONS, unused, notes)


def _refuse(settings: TheirSettings) -> None:
    settings.must_be("is_encoder_decoder", True, "translator has an encoder and a decoder")
    settings.must_be("is_decoder", False, "translator has an encoder and a decoder")
    settings.must_be("normalize_before", False, "Marian normalises after each sub-layer")
    settings.must_be("normalize_embedding", False, "Marian does not normalise embeddings")
    settings.must_be("add_final_layer_norm", False, "Marian has no norm at the end of a stack")
    settings.must_be("static_position_embeddings", True, "Marian has sinusoids for positions, not learned ones")
    for ours, theirs, default in (("heads", "attention_heads", 16), ("hidden units", "ffn_dim", 4096)):
        wanted = settings.size(f"encoder_{theirs}", default)
        if settings.size(f"decoder_{theirs}", default) != wanted:
            raise settings.wrong(
                f"decoder_{theirs}",
                f"cannot be imported, because regard's stacks have equal {ours}; choose a model where it is {wanted}, "
                f"as encoder_{theirs} is",
            )


def _settle_embeddings(settings: TheirSettings, weights: Weights, notes: list[str]) -> tuple[bool, bool]:
    """Whether source and target share their embeddings, and whether the output projection is the target's.

    One matrix may stand in the file under any of its four names, or under several. Where two that should be one
    differ, they are two. Afterwards each stands under the name that the table has for it.
    """
    tied, one = settings.flag("tie_word_embeddings", True), settings.flag("share_encoder_decoder_embeddings", True)
    tensors = weights.tensors
    output = tensors.pop(OUTPUT, None)
    common = tensors.get(SHARED, tensors.get(SOURCE, tensors.get(TARGET, output))) if one else None
    source, target = tensors.pop(SOURCE, common), tensors.pop(TARGET, output if tied and common is None else common)
    if source is None or target is None:  # the complaint names the first that is missing
        return one, True
    share_embeddings = one and same(source, target)
    tensors |= {SHARED: source} if share_embeddings else {SOURCE: source, TARGET: target}
    if output is None:
        if not tied:
            notes.append(f"The folder has no output projection ({OUTPUT}); the target's embeddings serve as one.")
        return share_embeddings, True
    if tied and same(target, output):
        return share_embeddings, True
    tensors[OUTPUT] = output
    return share_embeddings, False


def _check_positions(weights: Weights, width: int) -> None:
    """Tables of positions hold nothing if they are the sinusoids that our network computes."""
    for name in ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"):
        table = weights.tensors.get(name)
        if table is not None and not _is_sinusoidal(table, width):
            raise ModelError(
                f"{weights.path}: {weights.shown(name)} holds other positions than sinusoids, "
                "and regard's Marian has only these; choose a model that has them."
            )


def _is_sinusoidal(table: Tensor, width: int) -> bool:
    if table.dim() != 2 or table.size(1) != width:
        return False
    rounding = 4e-3  # of numbers up to 1 in bfloat16
    return torch.allclose(table.double(), sinusoidal_table(len(table), width, halves=True), atol=rounding)


def _special_tokens(
    settings: TheirSettings, vocabulary: int, unknown: int | None, notes: list[str]
) -> SpecialTokensConfig:
    """Marian starts a translation with the pad token."""
    pad = token_or(settings.token("pad_token_id", 58100, vocabulary), vocabulary - 1, "the pad", notes)
    end = token_or(settings.token("eos_token_id", 0, vocabulary), 0, "the end of a text", notes)
    unknown = token_or(unknown, min(1, vocabulary - 1), "the unknown one", notes)
    start = settings.token("decoder_start_token_id", None, vocabulary)
    return SpecialTokensConfig(pad=pad, unknown=unknown, start=pad if start is None else start, end=end)
