"""A model folder becomes one that CTranslate2 loads, with no code of ours.

    export_ctranslate2("runs/en-it/best", "en-it-ct2", "int8")
    ctranslate2.Translator("en-it-ct2").translate_batch([["▁I", "▁love", "▁you"]])

`ctranslate2.Translator` reads an encoder-decoder network, `ctranslate2.Generator` a decoder-only one. Our tokenizers,
which cut a text into the pieces that CTranslate2 is given, stand beside its own files.

V vocabulary · C model width
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ctranslate2.specs import (
    TransformerDecoderModelSpec,
    TransformerDecoderSpec,
    TransformerEncoderSpec,
    TransformerSpec,
)
from ctranslate2.specs.common_spec import Activation
from tokenizers import Tokenizer

from regard.config import (
    AlibiPositionsConfig,
    Config,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    RelativePositionsConfig,
    RotaryPositionsConfig,
    TransformerConfig,
)
from regard.errors import ModelError
from regard.interop.ctranslate2_support import unsupported_reason
from regard.interop.hf_tokenizers import copy_tokenizers
from regard.interop.new_folder import new_export_folder
from regard.interop.weight_transforms import Tensors, equal_head_width, equalize_head_widths, position_table
from regard.models import load
from regard.models.folder_files import TARGET_TOKENIZER_FILE, TOKENIZER_FILE, read_config
from regard.models.weights import repeat_kv_heads

Precision = Literal["int8", "float32"]
CTRANSLATE2_ACTIVATIONS = {
    "relu": Activation.RELU,
    "gelu": Activation.GELU,
    "gelu-tanh": Activation.GELUTanh,
    "swish": Activation.SWISH,
    "swiglu": Activation.SWISH,
}
SUPPRESSED_LOGIT = -1e4  # as a logit: e^NEVER is 0 in every precision, and NEVER itself is finite even in 16 bits


def export_ctranslate2(folder: str | Path, out: str | Path, precision: Precision = "float32") -> None:
    """Write a model for CTranslate2; in `int8`, every matrix has 8-bit numbers with one scale a row."""
    folder, out = Path(folder), Path(out)
    config = read_config(folder)
    reason = unsupported_reason(config)
    if reason is not None:
        raise ModelError(f"{folder}: cannot be converted, because {reason}; use it with regard itself.")
    tokenizers = copy_tokenizers(folder, TOKENIZER_FILE, TARGET_TOKENIZER_FILE)
    names = build_vocabularies(
        config, tokenizers.by_file.get(TOKENIZER_FILE), tokenizers.by_file.get(TARGET_TOKENIZER_FILE)
    )
    tensors = {name: tensor.float() for name, tensor in load(folder).network.state_dict().items()}
    spec = build_ctranslate2_spec(config, tensors, names)
    spec.validate()
    spec.optimize(quantization=precision)
    with new_export_folder(out) as draft:
        spec.save(str(draft))
        for name, content in tokenizers.files.items():
            (draft / name).write_bytes(content)


def build_ctranslate2_spec(config: Config, tensors: Tensors, names: "Vocabularies") -> Any:
    """A network in CTranslate2's terms."""
    model, tokens = config.model, config.tokens
    assert isinstance(model, EncoderDecoderConfig | DecoderOnlyConfig)  # as `unsupported_reason` has seen to
    kv_heads = _native_kv_heads(model)
    if kv_heads is None:
        tensors = equalize_head_widths(repeat_kv_heads(tensors, model), model)
    encodes = isinstance(model, EncoderDecoderConfig)
    layers = model.decoder_layers if isinstance(model, EncoderDecoderConfig) else None
    same: dict[str, Any] = {
        "num_heads": model.heads,
        "num_heads_kv": kv_heads,
        "head_dim": None if equal_head_width(model) == model.head_width else equal_head_width(model),
        "pre_norm": model.norm_order == "pre",
        "rms_norm": model.norm == "rms",
        "activation": CTRANSLATE2_ACTIVATIONS[model.activation],
        "ffn_glu": model.activation == "swiglu",
        "layernorm_embedding": model.embedding_norm,
        "relative_position": isinstance(model.positions, RelativePositionsConfig),
    }
    decoder = TransformerDecoderSpec(
        layers or model.layers,
        with_encoder_attention=encodes,
        alignment_heads=model.heads,  # what a token looks at is the mean over all heads of the last layer
        **_attention_positions(model),
        **same,
    )
    _fill_stack(decoder, decoder.embeddings, tensors, "decoder", model)
    _fill_output(decoder.projection, tensors, config)
    if encodes:
        encoder = TransformerEncoderSpec(model.layers, **same)
        _fill_stack(encoder, encoder.embeddings[0], tensors, "encoder", model)
        spec = TransformerSpec(encoder, decoder)
        spec.config.decoder_start_token = names.target[tokens.start]
        spec.config.add_source_eos = True
        spec.register_source_vocabulary(names.source)
        spec.register_target_vocabulary(names.target)
    else:
        spec = TransformerDecoderModelSpec(decoder)
        spec.register_vocabulary(names.target)
    spec.config.unk_token = names.target[tokens.unknown]
    spec.config.bos_token = names.target[tokens.start]
    spec.config.eos_token = names.target[tokens.end]
    spec.config.layer_norm_epsilon = model.norm_epsilon
    return spec


def _native_kv_heads(model: TransformerConfig) -> int | None:
    """Return the key and value heads if CTranslate2 can group them; None: they are repeated for each query head.

    CTranslate2 groups the heads of self-attention, if queries, keys and values have the same width.
    """
    grouped = model.kv_heads is not None and model.kv_heads != model.heads
    same_width = equal_head_width(model) == model.head_width and model.key_width is None and model.scale_scores
    native = isinstance(model, DecoderOnlyConfig) and not isinstance(model.positions, RelativePositionsConfig)
    return model.kv_heads if grouped and same_width and native else None


def _attention_positions(model: TransformerConfig) -> dict[str, Any]:
    """The positions of a decoder, where they are none that are added to its embeddings."""
    match model.positions:
        case RotaryPositionsConfig(base=base, layout=layout):
            turned = model.key_width or model.head_width  # and not what fills heads up
            return {"rotary_dim": turned, "rotary_interleave": layout == "interleaved", "rotary_base": base}
        case AlibiPositionsConfig():
            return {"alibi": True}
        case _:
            return {}


def _fill_stack(
    spec: Any, embeddings: Any, tensors: Tensors, stack: str, model: EncoderDecoderConfig | DecoderOnlyConfig
) -> None:
    embeddings.weight = tensors[f"{stack}.embedding.weight"]
    spec.scale_embeddings = model.scale_embeddings
    if hasattr(spec, "position_encodings"):
        # without a table, CTranslate2 would compute sinusoids of its own, which begin at 1
        spec.position_encodings.encodings = position_table(tensors, stack, model)
    if model.embedding_norm:
        _fill_norm(spec.layernorm_embedding, tensors, f"{stack}.embedding.norm")
    if model.norm_order == "pre":
        _fill_norm(spec.layer_norm, tensors, f"{stack}.norm")
    for number, layer in enumerate(spec.layer):
        _fill_layer(layer, tensors, f"{stack}.layers.{number}")


def _fill_layer(spec: Any, tensors: Tensors, layer: str) -> None:
    own = spec.self_attention
    _fill_linear(own.linear[0], tensors, f"{layer}.attention.query_key_value")
    _fill_linear(own.linear[1], tensors, f"{layer}.attention.output")
    _fill_norm(own.layer_norm, tensors, f"{layer}.attention_residual.norm")
    if hasattr(own, "relative_position_keys"):
        own.relative_position_keys = tensors[f"{layer}.attention.positions.keys"]
        own.relative_position_values = tensors[f"{layer}.attention.positions.values"]
    if hasattr(spec, "attention"):
        cross = spec.attention
        _fill_linear(cross.linear[0], tensors, f"{layer}.cross_attention.query")
        _fill_linear(cross.linear[1], tensors, f"{layer}.cross_attention.key_value")
        _fill_linear(cross.linear[2], tensors, f"{layer}.cross_attention.output")
        _fill_norm(cross.layer_norm, tensors, f"{layer}.cross_attention_residual.norm")
    if hasattr(spec.ffn, "linear_0_noact"):
        spec.ffn.linear_0.weight, spec.ffn.linear_0_noact.weight = tensors[f"{layer}.feed_forward.inner.weight"].chunk(
            2
        )
    else:
        _fill_linear(spec.ffn.linear_0, tensors, f"{layer}.feed_forward.inner")
    _fill_linear(spec.ffn.linear_1, tensors, f"{layer}.feed_forward.output")
    _fill_norm(spec.ffn.layer_norm, tensors, f"{layer}.feed_forward_residual.norm")


def _fill_linear(spec: Any, tensors: Tensors, name: str) -> None:
    spec.weight = tensors[f"{name}.weight"]
    if f"{name}.bias" in tensors:
        spec.bias = tensors[f"{name}.bias"]


def _fill_norm(spec: Any, tensors: Tensors, name: str) -> None:
    spec.gamma = tensors[f"{name}.weight"]
    if f"{name}.bias" in tensors:
        spec.beta = tensors[f"{name}.bias"]


def _fill_output(spec: Any, tensors: Tensors, config: Config) -> None:
    """The projection to the vocabulary. CTranslate2 has no rule that tokens which are not text are never written.

    So they have a bias that no other logit can make up for, unless one is the end as well.
    """
    weight, tokens = tensors["output.weight"], config.tokens
    bias = tensors.get("output.bias", weight.new_zeros(len(weight))).clone()
    for number in {tokens.pad, tokens.start} - {tokens.end}:
        bias[number : number + 1] = (
            SUPPRESSED_LOGIT  # a slice: the pad of the source may be none of the target's tokens
        )
    spec.weight = weight
    if bias.any():
        spec.bias = bias


class Vocabularies(NamedTuple):
    """The names of the source's tokens and of the target's, in the order of their ids."""

    source: list[str]
    target: list[str]


def build_vocabularies(config: Config, source: Tokenizer | None, target: Tokenizer | None) -> Vocabularies:
    """The names of a network's tokens; one side's tokenizer serves both where the other has none.

    CTranslate2 looks up the special tokens by the same names on both sides, so the source's take the target's names.
    """
    size = config.model.vocab_size
    written = config.model.target_vocab_size if isinstance(config.model, EncoderDecoderConfig) else None
    targets = token_names(target or source, written or size)
    numbers = [number for _, number in config.tokens if number is not None]
    special = {number: targets[number] for number in numbers if number < min(size, len(targets))}
    return Vocabularies(token_names(source or target, size, special), targets)


def token_names(tokenizer: Tokenizer | None, size: int, given: Mapping[int, str] | None = None) -> list[str]:
    """A name for each id: `given`, or the tokenizer's; a made-up one where it has none, or one that is taken.

    >>> token_names(None, 2)
    ['<unnamed 0>', '<unnamed 1>']
    """
    given = given or {}
    found, taken = list[str](), set(given.values())
    for number in range(size):
        name = given.get(number)
        if name is None:
            name = tokenizer.id_to_token(number) if tokenizer is not None else None
            if name is None or name in taken:
                name = f"<unnamed {number}>"
            while name in taken:
                name += "'"
            taken.add(name)
        found.append(name)
    return found
