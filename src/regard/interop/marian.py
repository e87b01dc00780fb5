"""Marian (OPUS-MT) as an encoder-decoder network: the paper's, with swish, biases and sinusoids in halves."""

from pathlib import Path

import torch
from torch import Tensor

from regard.config import Config, EncoderDecoderConfig, SinusoidalPositionsConfig, SpecialTokensConfig
from regard.errors import ModelError
from regard.interop.ctranslate2_support import MAX_POSITIONS
from regard.interop.hf_folder import HFConfig, HFWeights, read_weights
from regard.interop.hf_spec import (
    HFSpec,
    ImportPlan,
    common_reasons,
    first_reason,
    hf_activation,
    read_activation,
    same_tensor,
    suppressed_token_ids,
    token_or_default,
)
from regard.interop.hf_tokenizers import special_token_names
from regard.interop.marian_tokenizer import marian_tokenizers
from regard.interop.tensor_mapping import SINGLE_ROW, TensorMapping, map_module, to_huggingface, with_prefixes
from regard.interop.weight_transforms import Tensors, add_zero_biases, equalize_head_widths, permute_width
from regard.nn import sinusoidal_table

MARIAN_SHARED, MARIAN_OUTPUT, MARIAN_BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
MARIAN_SOURCE, MARIAN_TARGET = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
MARIAN_BUFFERS = r"model\.(en|de)coder\.embed_positions\.weight"
MARIAN_ENCODER_LAYER = [
    *map_module("attention.query_key_value", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    *map_module("attention.output", "self_attn.out_proj"),
    *map_module("attention_residual.norm", "self_attn_layer_norm"),
    *map_module("feed_forward.inner", "fc1"),
    *map_module("feed_forward.output", "fc2"),
    *map_module("feed_forward_residual.norm", "final_layer_norm"),
]
MARIAN_DECODER_LAYER = [
    *MARIAN_ENCODER_LAYER,
    *map_module("cross_attention.query", "encoder_attn.q_proj"),
    *map_module("cross_attention.key_value", "encoder_attn.k_proj", "encoder_attn.v_proj"),
    *map_module("cross_attention.output", "encoder_attn.out_proj"),
    *map_module("cross_attention_residual.norm", "encoder_attn_layer_norm"),
]


def marian_mappings(model: EncoderDecoderConfig) -> list[TensorMapping]:
    """Our tensors and those of a `MarianMTModel`.

    >>> [row.theirs for row in marian_mappings(EncoderDecoderConfig(layers=1, share_embeddings=False))[:2]]
    [('model.encoder.embed_tokens.weight',), ('model.decoder.embed_tokens.weight',)]
    """
    shared = [TensorMapping("encoder.embedding.weight", (MARIAN_SHARED,))]
    separate = [
        TensorMapping("encoder.embedding.weight", (MARIAN_SOURCE,)),
        TensorMapping("decoder.embedding.weight", (MARIAN_TARGET,)),
    ]
    return [
        *(shared if model.share_embeddings else separate),
        *_layers("encoder", MARIAN_ENCODER_LAYER, model.layers),
        *_layers("decoder", MARIAN_DECODER_LAYER, model.decoder_layers or model.layers),
        *([] if model.tie_output else [TensorMapping("output.weight", (MARIAN_OUTPUT,))]),
        *([TensorMapping("output.bias", (MARIAN_BIAS,), SINGLE_ROW)] if model.output_bias else []),
    ]


def _layers(stack: str, layer: list[TensorMapping], count: int) -> list[TensorMapping]:
    return [
        row for n in range(count) for row in with_prefixes(layer, f"{stack}.layers.{n}.", f"model.{stack}.layers.{n}.")
    ]


def import_marian(folder: Path, settings: HFConfig) -> ImportPlan:
    """A folder that one of the Marian classes was saved to."""
    _check_config(settings)
    vocabulary, width = settings.size("vocab_size", 58101), settings.size("d_model", 1024)
    layers, decoder_layers = settings.layers("encoder_layers", 12), settings.layers("decoder_layers", 12)
    weights, notes = read_weights(folder, "model.", (MARIAN_OUTPUT, MARIAN_BIAS)), list[str]()
    share_embeddings, share_output = _resolve_embeddings(settings, weights, notes)
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
        activation=read_activation(settings, "activation_function", "gelu"),
        positions=SinusoidalPositionsConfig(layout="halves"),
        dropout=settings.rate("dropout", 0.1),
        attention_dropout=settings.rate("attention_dropout", 0.0),
        activation_dropout=settings.rate("activation_dropout", 0.0),
        attention_bias=True,
        scale_embeddings=settings.flag("scale_embedding", False),
        tie_output=share_output,
        output_bias=MARIAN_BIAS in weights.tensors,
        decoder_layers=None if decoder_layers == layers else decoder_layers,
        share_embeddings=share_embeddings,
        target_vocab_size=None if target_vocabulary == vocabulary else target_vocabulary,
    )
    tokenizers = marian_tokenizers(folder)
    unknown = tokenizers.id_of(special_token_names(folder, unk_token="<unk>")["unk_token"])
    tokens = _special_tokens(settings, target_vocabulary, unknown, notes)
    unused = {MARIAN_SHARED: "encoder and decoder have embeddings of their own"}
    return ImportPlan(model, tokens, marian_mappings(model), weights, tokenizers, MARIAN_BUFFERS, unused, notes)


def _check_config(settings: HFConfig) -> None:
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


def _resolve_embeddings(settings: HFConfig, weights: HFWeights, notes: list[str]) -> tuple[bool, bool]:
    """Whether source and target share their embeddings, and whether the output projection is the target's.

    One matrix may stand in the file under any of its four names, or under several. Where two that should be one
    differ, they are two. Afterwards each stands under the name that the table has for it.
    """
    tied, one = settings.flag("tie_word_embeddings", True), settings.flag("share_encoder_decoder_embeddings", True)
    tensors = weights.tensors
    output = tensors.pop(MARIAN_OUTPUT, None)
    common = tensors.get(MARIAN_SHARED, tensors.get(MARIAN_SOURCE, tensors.get(MARIAN_TARGET, output))) if one else None
    source, target = (
        tensors.pop(MARIAN_SOURCE, common),
        tensors.pop(MARIAN_TARGET, output if tied and common is None else common),
    )
    if source is None or target is None:  # the complaint names the first that is missing
        return one, True
    share_embeddings = one and same_tensor(source, target)
    tensors |= {MARIAN_SHARED: source} if share_embeddings else {MARIAN_SOURCE: source, MARIAN_TARGET: target}
    if output is None:
        if not tied:
            notes.append(
                f"The folder has no output projection ({MARIAN_OUTPUT}); the target's embeddings serve as one."
            )
        return share_embeddings, True
    if tied and same_tensor(target, output):
        return share_embeddings, True
    tensors[MARIAN_OUTPUT] = output
    return share_embeddings, False


def _check_positions(weights: HFWeights, width: int) -> None:
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


def _special_tokens(settings: HFConfig, vocabulary: int, unknown: int | None, notes: list[str]) -> SpecialTokensConfig:
    """Marian starts a translation with the pad token."""
    pad = token_or_default(settings.token("pad_token_id", 58100, vocabulary), vocabulary - 1, "the pad", notes)
    end = token_or_default(settings.token("eos_token_id", 0, vocabulary), 0, "the end of a text", notes)
    unknown = token_or_default(unknown, min(1, vocabulary - 1), "the unknown one", notes)
    start = settings.token("decoder_start_token_id", None, vocabulary)
    return SpecialTokensConfig(pad=pad, unknown=unknown, start=pad if start is None else start, end=end)


MARIAN_EPSILON = 1e-5  # of its norms, which is no setting
MARIAN_GENERATED_TOKENS = 512  # tokens of a translation, unless more are asked for


def unsupported_by_marian(config: Config, model: EncoderDecoderConfig) -> str | None:
    """Why Marian cannot hold a network; None if it can."""
    vocabulary = min(model.vocab_size, model.target_vocab_size or model.vocab_size)
    tokens = config.tokens
    return first_reason(
        {
            "Marian normalises after each sub-layer, and this network before": model.norm_order == "pre",
            **common_reasons(model, "Marian"),
            f"the epsilon of Marian's norms is {MARIAN_EPSILON}, and of this network's {model.norm_epsilon}": (
                model.norm_epsilon != MARIAN_EPSILON
            ),
            "Marian does not normalise embeddings, and this network does": model.embedding_norm,
            f"Marian's positions are sinusoidal, and this network's are {model.positions.kind}": not isinstance(
                model.positions, SinusoidalPositionsConfig
            ),
            "its pad, start or end token is past the last token of a vocabulary": (
                max(tokens.pad, tokens.start, tokens.end) >= vocabulary
            ),
        }
    )


def export_marian(config: Config, model: EncoderDecoderConfig, tensors: Tensors) -> HFSpec:
    """The network in Marian's terms."""
    tokens = config.tokens
    tensors = add_zero_biases(equalize_head_widths(tensors, model))
    if isinstance(model.positions, SinusoidalPositionsConfig) and model.positions.layout == "interleaved":
        tensors = permute_width(tensors, sines_first_order(model.width))
    theirs = to_huggingface(marian_mappings(model.model_copy(update={"output_bias": True})), tensors)
    if model.share_embeddings and not model.tie_output:  # what is not tied to the output is tied to nothing
        theirs |= {MARIAN_SOURCE: theirs[MARIAN_SHARED], MARIAN_TARGET: theirs[MARIAN_SHARED]}
    settings = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": model.vocab_size,
        "decoder_vocab_size": model.target_vocab_size or model.vocab_size,
        "d_model": model.width,
        "encoder_layers": model.layers,
        "decoder_layers": model.decoder_layers or model.layers,
        "encoder_attention_heads": model.heads,
        "decoder_attention_heads": model.heads,
        "encoder_ffn_dim": model.feed_forward,
        "decoder_ffn_dim": model.feed_forward,
        "activation_function": hf_activation(model),
        "static_position_embeddings": True,
        "max_position_embeddings": MAX_POSITIONS,
        "scale_embedding": model.scale_embeddings,
        "share_encoder_decoder_embeddings": model.share_embeddings,
        "tie_word_embeddings": model.tie_output,
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_dropout": model.activation_dropout,
        "pad_token_id": tokens.pad,
        "eos_token_id": tokens.end,
        "decoder_start_token_id": tokens.start,
        "forced_eos_token_id": None,
    }
    generation = {
        "pad_token_id": tokens.pad,
        "eos_token_id": tokens.end,
        "decoder_start_token_id": tokens.start,
        "bad_words_ids": suppressed_token_ids(config) or None,
        "max_length": MARIAN_GENERATED_TOKENS,
        "num_beams": 4,
    }
    special = {"pad_token": tokens.pad, "unk_token": tokens.unknown, "bos_token": tokens.start, "eos_token": tokens.end}
    tokenizer = {"model_input_names": ["input_ids", "attention_mask"], "model_max_length": MAX_POSITIONS}
    return HFSpec(settings, theirs, (), (tokens.end,), special, tokenizer, generation)


def sines_first_order(width: int) -> Tensor:
    """The order of axes that makes sines and cosines in turn all sines, then all cosines.

    >>> sines_first_order(5)
    tensor([0, 2, 4, 1, 3])
    """
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
