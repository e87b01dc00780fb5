"""Export to CTranslate2: a folder that its `Translator` or `Generator` loads without regard. Torch-free.

    export_ctranslate2("runs/en-it/best", "en-it-ct2", "int8")
    ctranslate2.Translator("en-it-ct2").translate_batch([["▁I", "▁love", "▁you"]])

`ctranslate2.Translator` loads encoder-decoder networks, `ctranslate2.Generator` decoder-only ones. The folder also
contains our tokenizers, which produce the tokens that CTranslate2 takes as input.

V vocabulary · C model width
"""

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ctranslate2.specs import (
    TransformerDecoderModelSpec,
    TransformerDecoderSpec,
    TransformerEncoderSpec,
    TransformerSpec,
)
from ctranslate2.specs.attention_spec import RotaryScalingType
from ctranslate2.specs.common_spec import Activation
from tokenizers import Tokenizer

from regard.config import (
    AlibiPositionsConfig,
    Config,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    Llama3ScalingConfig,
    RelativePositionsConfig,
    RotaryPositionsConfig,
    ScalingConfig,
    TransformerConfig,
)
from regard.errors import ConfigError, ModelError
from regard.files import write_checksums
from regard.interop.exporters import (
    EXAMPLE_TEXT,
    ExportReport,
    load_tokenizer_line,
    new_export_folder,
    quoted,
    unsupported_reason,
)
from regard.interop.hf_tokenizers import copy_tokenizers
from regard.interop.int8_quality import measure_int8_quality
from regard.interop.weight_arrays import read_arrays
from regard.interop.weight_transforms import (
    Arrays,
    add_norm_parameters,
    equal_head_width,
    equalize_head_widths,
    position_table,
    repeat_kv_heads,
    widen_embeddings,
)
from regard.models.folder_files import TARGET_TOKENIZER_FILE, TOKENIZER_FILE, read_config
from regard.registry import PRECISIONS, Precision

CTRANSLATE2_ACTIVATIONS = {
    "relu": Activation.RELU,
    "gelu": Activation.GELU,
    "gelu-tanh": Activation.GELUTanh,
    "swish": Activation.SWISH,
    "swiglu": Activation.SWISH,
}
SUPPRESSED_LOGIT = -1e4  # its exponential is 0 in every precision, and it is finite even in 16 bits


def export_ctranslate2(
    folder: str | Path, out: str | Path, precision: Precision = "int8", *, checksums: bool = False
) -> ExportReport:
    """Convert a model for CTranslate2.

    Args:
        folder: A model folder.
        out: The folder to write, which must not exist.
        precision: "int8" for 8-bit matrices with one scale per row, or "float32".
        checksums: Add a `checksums.json`, with which damage is detected.
    """
    folder, out = Path(folder), Path(out)
    config = read_config(folder)
    reason = unsupported_reason(config)
    if reason is not None:
        raise ModelError(f"{folder}: cannot be converted, because {reason}; use it with regard.")
    tokenizers = copy_tokenizers(folder, TOKENIZER_FILE, TARGET_TOKENIZER_FILE)
    source, target = (tokenizers.by_file.get(name) for name in (TOKENIZER_FILE, TARGET_TOKENIZER_FILE))
    assert isinstance(config.model, EncoderDecoderConfig | DecoderOnlyConfig)  # checked by `unsupported_reason`
    arrays = read_arrays(folder, config.model)
    spec = build_ctranslate2_spec(config, arrays, build_vocabularies(config, source, target))
    spec.validate()
    spec.optimize(quantization=precision)
    with new_export_folder(out) as temporary:
        spec.save(str(temporary))
        for name, content in tokenizers.files.items():
            (temporary / name).write_bytes(content)
        if checksums:
            write_checksums(temporary)
    return ExportReport(out, "CTranslate2", precision, example=tuple(ctranslate2_example(out, config)))


def ctranslate2_exporter(folder: Path, out: Path, quantization: str | None = None) -> ExportReport:
    """Convert a model with this quantization; the registered exporter.

    Without a quantization it is int8, but float32 for a language model whose predictions int8 changes too much.
    """
    precision = next((name for name in PRECISIONS if name == (quantization or "int8")), None)
    if precision is None:
        raise ConfigError(
            f"quantization = {quantization}: ctranslate2 has {' and '.join(PRECISIONS)}; use one of them."
        )
    report = export_ctranslate2(folder, out, precision)
    config = read_config(folder)
    if precision != "int8" or not isinstance(config.model, DecoderOnlyConfig):
        return report
    with tempfile.TemporaryDirectory(dir=out.parent) as temporary:
        exact = export_ctranslate2(folder, Path(temporary) / "float32", "float32")
        quality = measure_int8_quality(out, exact.folder, config)
        if quality.is_accurate:
            return report
        if quantization == "int8":
            return replace(report, notes=(f"{quality}: --quantization float32 keeps its predictions.",))
        shutil.rmtree(out)
        exact.folder.rename(out)
    return replace(report, kind="float32", notes=(f"{quality}, so it is written in float32.",))


class Vocabularies(NamedTuple):
    """The tokens of source and target in the order of their ids."""

    source: list[str]
    target: list[str]


def build_vocabularies(config: Config, source: Tokenizer | None, target: Tokenizer | None) -> Vocabularies:
    """Return the tokens of a network; a single tokenizer is used for both sides.

    CTranslate2 looks up special tokens by the same name on both sides, so the source uses the names of the target.
    """
    size = config.model.vocab_size
    target_size = config.model.target_vocab_size if isinstance(config.model, EncoderDecoderConfig) else None
    targets = token_names(target or source, target_size or size)
    special = {
        token_id: targets[token_id] for token_id in sorted(config.tokens.ids) if token_id < min(size, len(targets))
    }
    return Vocabularies(token_names(source or target, size, special), targets)


def token_names(tokenizer: Tokenizer | None, size: int, fixed: Mapping[int, str] | None = None) -> list[str]:
    """Return a unique name for each id: from `fixed`, from the tokenizer, or a made-up one.

    >>> token_names(None, 2)
    ['<unnamed 0>', '<unnamed 1>']
    """
    fixed = fixed or {}
    names, used = list[str](), set(fixed.values())
    for token_id in range(size):
        name = fixed.get(token_id)
        if name is None:
            name = tokenizer.id_to_token(token_id) if tokenizer is not None else None
            if name is None or name in used:
                name = f"<unnamed {token_id}>"
            while name in used:
                name += "'"
            used.add(name)
        names.append(name)
    return names


def build_ctranslate2_spec(config: Config, arrays: Arrays, vocabularies: Vocabularies) -> Any:
    """Return CTranslate2's specification of a network."""
    model, tokens = config.model, config.tokens
    assert isinstance(model, EncoderDecoderConfig | DecoderOnlyConfig)  # checked by `unsupported_reason`
    kv_heads = _native_kv_heads(model)
    arrays = widen_embeddings(add_norm_parameters(arrays, model), model)
    if kv_heads is None:
        arrays = equalize_head_widths(repeat_kv_heads(arrays, model), model)
    has_encoder = isinstance(model, EncoderDecoderConfig)
    decoder_layers = model.decoder_layers if isinstance(model, EncoderDecoderConfig) else None
    head_width = equal_head_width(model)
    common: dict[str, Any] = {
        "num_heads": model.heads,
        "num_heads_kv": kv_heads,
        "head_dim": None if head_width * model.heads == model.width else head_width,
        "pre_norm": model.norm_order == "pre",
        "rms_norm": model.norm == "rms",
        "activation": CTRANSLATE2_ACTIVATIONS[model.activation],
        "ffn_glu": model.activation == "swiglu",
        "layernorm_embedding": model.embedding_norm,
        "relative_position": isinstance(model.positions, RelativePositionsConfig),
    }
    if model.qk_norm:
        common["qk_norm"] = True
    decoder = TransformerDecoderSpec(
        decoder_layers or model.layers,
        with_encoder_attention=has_encoder,
        alignment_heads=model.heads,  # the alignment is the mean over all heads of the last layer
        **_attention_positions(model),
        **common,
    )
    _fill_stack(decoder, decoder.embeddings, arrays, "decoder", model)
    _fill_output(decoder.projection, arrays, config)
    if has_encoder:
        encoder = TransformerEncoderSpec(model.layers, **common)
        _fill_stack(encoder, encoder.embeddings[0], arrays, "encoder", model)
        spec = TransformerSpec(encoder, decoder)
        spec.config.decoder_start_token = vocabularies.target[tokens.start]
        spec.config.add_source_eos = True
        spec.register_source_vocabulary(vocabularies.source)
        spec.register_target_vocabulary(vocabularies.target)
    else:
        spec = TransformerDecoderModelSpec(decoder)
        spec.register_vocabulary(vocabularies.target)
    spec.config.unk_token = vocabularies.target[tokens.unknown]
    spec.config.bos_token = vocabularies.target[tokens.start]
    spec.config.eos_token = vocabularies.target[tokens.end]
    spec.config.layer_norm_epsilon = model.norm_epsilon
    return spec


def _native_kv_heads(model: TransformerConfig) -> int | None:
    """Return the key and value heads if CTranslate2 can group them; None: they are repeated for each query head.

    CTranslate2 groups the heads of self-attention, if queries, keys and values have the same width.
    """
    is_grouped = model.kv_heads is not None and model.kv_heads != model.heads
    same_width = model.key_width in (None, model.head_width) and model.scale_scores
    is_native = isinstance(model, DecoderOnlyConfig) and not isinstance(model.positions, RelativePositionsConfig)
    return model.kv_heads if is_grouped and same_width and is_native else None


def _attention_positions(model: TransformerConfig) -> dict[str, Any]:
    """Return the settings of positions that act inside of a decoder's attention."""
    match model.positions:
        case RotaryPositionsConfig(base=base, layout=layout, scaling=scaling):
            rotated = model.key_width or model.head_width  # without the padding of heads
            rotary = {"rotary_dim": rotated, "rotary_interleave": layout == "interleaved", "rotary_base": base}
            return rotary | (_rotary_scaling(scaling) if scaling is not None else {})
        case AlibiPositionsConfig():
            return {"alibi": True}
        case _:
            return {}


def _rotary_scaling(scaling: ScalingConfig) -> dict[str, Any]:
    """Return CTranslate2's settings of a scaling that `unsupported_reason` accepts."""
    settings: dict[str, Any] = {"rotary_scaling_factor": scaling.factor}
    if isinstance(scaling, Llama3ScalingConfig):
        settings["original_max_position_embeddings"] = scaling.original_length
        return settings | {"rotary_scaling_type": RotaryScalingType.Llama3}
    return settings | {"rotary_scaling_type": RotaryScalingType.Linear}


def _fill_stack(
    spec: Any, embeddings: Any, arrays: Arrays, stack: str, model: EncoderDecoderConfig | DecoderOnlyConfig
) -> None:
    embeddings.weight = arrays[f"{stack}.embedding.weight"]
    spec.scale_embeddings = model.scale_embeddings
    if hasattr(spec, "position_encodings"):
        # without a table, CTranslate2 computes sinusoids of its own, which start at position 1
        spec.position_encodings.encodings = position_table(arrays, stack, model)
    if model.embedding_norm:
        _fill_norm(spec.layernorm_embedding, arrays, f"{stack}.embedding.norm")
    if model.norm_order == "pre":
        _fill_norm(spec.layer_norm, arrays, f"{stack}.norm")
    for index, layer in enumerate(spec.layer):
        _fill_layer(layer, arrays, f"{stack}.layers.{index}")
        match model.positions:
            case RotaryPositionsConfig(scaling=Llama3ScalingConfig() as scaling):
                attention = layer.self_attention  # its class lacks the attribute that the library reads
                attention.__dict__["rotary_scaling_factor"] = np.float32(scaling.factor)
                attention.rotary_low_freq_factor = np.float32(scaling.low_turns)
                attention.rotary_high_freq_factor = np.float32(scaling.high_turns)


def _fill_layer(spec: Any, arrays: Arrays, layer: str) -> None:
    attention = spec.self_attention
    _fill_linear(attention.linear[0], arrays, f"{layer}.attention.query_key_value")
    _fill_linear(attention.linear[1], arrays, f"{layer}.attention.output")
    _fill_norm(attention.layer_norm, arrays, f"{layer}.attention_residual.norm")
    if hasattr(attention, "q_norm"):
        _fill_norm(attention.q_norm, arrays, f"{layer}.attention.query_norm")
        _fill_norm(attention.k_norm, arrays, f"{layer}.attention.key_norm")
    if hasattr(attention, "relative_position_keys"):
        attention.relative_position_keys = arrays[f"{layer}.attention.positions.keys"]
        attention.relative_position_values = arrays[f"{layer}.attention.positions.values"]
    if hasattr(spec, "attention"):
        cross = spec.attention
        _fill_linear(cross.linear[0], arrays, f"{layer}.cross_attention.query")
        _fill_linear(cross.linear[1], arrays, f"{layer}.cross_attention.key_value")
        _fill_linear(cross.linear[2], arrays, f"{layer}.cross_attention.output")
        _fill_norm(cross.layer_norm, arrays, f"{layer}.cross_attention_residual.norm")
    if hasattr(spec.ffn, "linear_0_noact"):
        gate, linear = np.split(arrays[f"{layer}.feed_forward.inner.weight"], 2)
        spec.ffn.linear_0.weight, spec.ffn.linear_0_noact.weight = gate, linear
    else:
        _fill_linear(spec.ffn.linear_0, arrays, f"{layer}.feed_forward.inner")
    _fill_linear(spec.ffn.linear_1, arrays, f"{layer}.feed_forward.output")
    _fill_norm(spec.ffn.layer_norm, arrays, f"{layer}.feed_forward_residual.norm")


def _fill_linear(spec: Any, arrays: Arrays, name: str) -> None:
    spec.weight = arrays[f"{name}.weight"]
    if f"{name}.bias" in arrays:
        spec.bias = arrays[f"{name}.bias"]


def _fill_norm(spec: Any, arrays: Arrays, name: str) -> None:
    spec.gamma = arrays[f"{name}.weight"]
    if f"{name}.bias" in arrays:
        spec.beta = arrays[f"{name}.bias"]


def _fill_output(spec: Any, arrays: Arrays, config: Config) -> None:
    """Fill the output projection. Padding and start tokens get a bias that rules them out, unless one is the end token.

    CTranslate2 has no other way to suppress tokens in every search.
    """
    weight, tokens = arrays["output.weight"], config.tokens
    bias = arrays.get("output.bias", np.zeros(len(weight), weight.dtype)).copy()
    for token_id in {tokens.pad, tokens.start} - {*tokens.ends}:
        bias[token_id : token_id + 1] = SUPPRESSED_LOGIT  # a slice, since the target may not have the source's padding
    spec.weight = weight
    if bias.any():
        spec.bias = bias


def ctranslate2_example(folder: Path, config: Config) -> list[str]:
    """Return lines of Python that run an exported model."""
    kind = "Translator" if isinstance(config.model, EncoderDecoderConfig) else "Generator"
    load_model = f"model = ctranslate2.{kind}({quoted(folder)})"
    if not (folder / TOKENIZER_FILE).exists():
        return ["import ctranslate2", load_model]
    load_tokenizer = load_tokenizer_line("tokenizer", folder / TOKENIZER_FILE)
    lines = ["import ctranslate2, tokenizers", load_model, load_tokenizer]
    tokens = f"tokenizer.encode({quoted(EXAMPLE_TEXT)}, add_special_tokens=False).tokens"
    if kind == "Translator":
        target = "tokenizer"
        if (folder / TARGET_TOKENIZER_FILE).exists():
            target = "target"
            lines.append(load_tokenizer_line(target, folder / TARGET_TOKENIZER_FILE))
        return [
            *lines,
            f"best = model.translate_batch([{tokens}])[0].hypotheses[0]",
            f"print({target}.decode([{target}.token_to_id(token) for token in best]))",
        ]
    start = json.loads((folder / "config.json").read_text("utf-8"))["bos_token"]
    prompt = f"[{quoted(start)}, *{tokens}]" if config.tokens.start != config.tokens.end else tokens
    max_length = min(50, (config.model.max_length or 100) // 2)
    return [
        *lines,
        f"text = model.generate_batch([{prompt}], max_length={max_length}, sampling_topk=10)[0]",
        "print(tokenizer.decode(text.sequences_ids[0]))",
    ]
