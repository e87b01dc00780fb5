"""Export of Llama- and Qwen-like decoders as GGUF, which llama.cpp and programs around it read.

    export_gguf("models/model", "model.gguf", "Q8_0")

Matrices have the requested type and norms float32. One tensor at a time is converted and written.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.config import Config, DecoderOnlyConfig, RotaryPositionsConfig
from regard.data.chat_templates import CHAT_TEMPLATE_FILE
from regard.errors import ConfigError, ModelError
from regard.files import atomic_path, write_error_message
from regard.interop.exporters import ExportReport, missing_parts, new_export_folder, quoted
from regard.interop.gguf import ARCHITECTURES, Architecture, gguf_mappings
from regard.interop.gguf_file import BLOCK_TYPES, import_gguf
from regard.interop.gguf_rotary import FREQUENCIES, add_rotary_positions, frequency_divisors
from regard.interop.gguf_tokenizer import export_tokenizer
from regard.interop.hf_spec import first_reason
from regard.interop.hf_tokenizers import copy_tokenizers
from regard.interop.weight_arrays import read_arrays
from regard.interop.weight_transforms import Array, Arrays, interleave
from regard.models.folder_files import TOKENIZER_FILE, read_config, read_file

if TYPE_CHECKING:
    from gguf import GGUFWriter

FILE_NAME = "model.gguf"
FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7}  # general.file_type of the types of matrices
DEFAULT_TYPE = "F16"
DEFAULT_CONTEXT = 2048  # where neither the positions nor the training data limit it


def export_gguf(folder: Path, out: Path, quantization: str | None = None) -> ExportReport:
    """Write a model as a GGUF file; the registered exporter.

    Args:
        folder: A model folder.
        out: The new file, if it ends with `.gguf`; otherwise a new folder for the file `model.gguf`.
        quantization: F32, F16 (default) or Q8_0.
    """
    kind = DEFAULT_TYPE if quantization is None else quantization.upper()
    if kind not in FILE_TYPES:
        raise ConfigError(f"quantization = {quantization}: GGUF files are written in {', '.join(FILE_TYPES)}.")
    config = read_config(folder)
    model = config.model
    reason = unsupported_by_gguf(config)
    if reason is not None or not isinstance(model, DecoderOnlyConfig):
        raise ModelError(f"{folder}: cannot be exported as GGUF, because {reason}.")
    import_gguf(out)  # before anything is read
    arrays = read_arrays(folder, model)
    if out.suffix != ".gguf":
        with new_export_folder(out) as temporary:
            notes = _write(temporary / FILE_NAME, folder, config, model, arrays, kind)
        out /= FILE_NAME
    elif out.exists():
        raise ModelError(f"{out}: already exists; choose another name or remove it first.")
    else:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(out) as path:
                notes = _write(path, folder, config, model, arrays, kind)
        except OSError as error:
            raise ModelError(write_error_message(out, error)) from None
    example = (
        "from llama_cpp import Llama",
        f"model = Llama({quoted(out)})",
        'print(model("Once upon a time", max_tokens=20)["choices"][0]["text"])',
    )
    return ExportReport(out, "llama.cpp", kind, tuple(notes), example)


def unsupported_by_gguf(config: Config) -> str | None:
    """Return why GGUF's Llama architecture cannot hold a model; None if it can."""
    model = config.model
    if not isinstance(model, DecoderOnlyConfig):
        return f"its Llama architecture is decoder-only, and this network is {model.kind}"
    positions = model.positions
    return first_reason(
        {
            f"Llama has rotary positions, and this network has {positions.kind}": positions.kind != "rotary",
            "Llama has RMS norms with gains, and this network has others": model.norm != "rms" or not model.norm_affine,
            **missing_parts(model, "Llama"),
            "Llama normalizes before each sublayer, and this network after": model.norm_order == "post",
            f"Llama has swiglu, and this network has {model.activation}": model.activation != "swiglu",
            "Llama has feed-forward layers, and this network has none": model.feed_forward == 0,
            "Llama has no bias after attention, and this network has": model.attention_bias is True,
            "Llama has no bias on its logits, and this network has": model.output_bias,
            "Qwen has either biases in attention or normalized queries and keys, and this network has both": (
                bool(model.attention_bias) and model.qk_norm
            ),
            "Qwen rotates entries that are half a head apart, and this network neighboring ones": (
                not _architecture(model).interleaved and getattr(positions, "layout", None) == "interleaved"
            ),
            "Llama does not cap logits, and this network does": model.logit_soft_cap is not None,
            "Llama does not scale embeddings, and this network does": model.scale_embeddings,
            "Llama does not normalize embeddings, and this network does": model.embedding_norm,
            "Llama scales scores, and this network does not": not model.scale_scores,
            "Llama has residual connections, and this network has none": not model.residual,
            "Llama has a causal mask, and this network has none": not model.causal_mask,
            f"Llama has full attention, and this network's is {model.attention.kind}": model.attention.kind != "full",
            "its queries and keys are not as wide as its values": model.key_width not in (None, model.head_width),
        }
    )


def _architecture(model: DecoderOnlyConfig) -> Architecture:
    return ARCHITECTURES["qwen3" if model.qk_norm else "qwen2" if model.attention_bias else "llama"]


def _write(path: Path, folder: Path, config: Config, model: DecoderOnlyConfig, arrays: Arrays, kind: str) -> list[str]:
    """Write the file; return notes."""
    gguf = import_gguf(path)
    writer = gguf.GGUFWriter(path, _architecture(model).name)
    _add_settings(writer, config, model, kind)
    notes = _add_tokenizer(writer, folder, config, model)
    stored = {name: _stored_type(array, kind) for name, array in _gguf_arrays(model, arrays)}
    for name, array in _gguf_arrays(model, arrays):
        block = BLOCK_TYPES[stored[name]]
        raw_type = gguf.GGMLQuantizationType[stored[name]]
        size = array.size // block.values * block.size
        writer.add_tensor_info(name, array.shape, np.dtype(np.float32), size, raw_dtype=raw_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, array in _gguf_arrays(model, arrays):
        values = np.ascontiguousarray(array, np.float32)
        writer.write_tensor_data(gguf.quants.quantize(values, gguf.GGMLQuantizationType[stored[name]]))
    writer.close()
    if not {*stored.values()} <= {"F32", kind}:
        count = BLOCK_TYPES[kind].values
        notes.append(f"Matrices whose rows are not a multiple of {count} values are stored in {DEFAULT_TYPE}.")
    return notes


def _stored_type(array: Array, kind: str) -> str:
    """Return the type of a tensor: float32 for norms, and float16 for rows that are not whole blocks."""
    if array.ndim == 1:
        return "F32"
    return DEFAULT_TYPE if array.shape[-1] % BLOCK_TYPES[kind].values else kind


def _gguf_arrays(model: DecoderOnlyConfig, arrays: Arrays) -> Iterator[tuple[str, Array]]:
    """Yield the tensors of GGUF; those with another order of rows are made when they are needed."""
    assert isinstance(model.positions, RotaryPositionsConfig)  # checked by `unsupported_by_gguf`
    reorders = model.positions.layout == "halves" and _architecture(model).interleaved
    if (divisors := frequency_divisors(model.positions, model.head_width)) is not None:
        yield FREQUENCIES, divisors
    for entry in gguf_mappings(model):
        ends = np.cumsum([rows for _, rows, _ in entry.parts])[:-1]
        for (name, _, heads), part in zip(entry.parts, np.split(arrays[entry.name], ends), strict=True):
            yield name, interleave(part, heads) if heads and reorders else part


def _add_settings(writer: "GGUFWriter", config: Config, model: DecoderOnlyConfig, kind: str) -> None:
    assert isinstance(model.positions, RotaryPositionsConfig)  # checked by `unsupported_by_gguf`
    writer.add_file_type(FILE_TYPES[kind])
    if kind == "Q8_0":
        writer.add_quantization_version(2)
    writer.add_vocab_size(model.vocab_size)
    writer.add_context_length(config.context_window or DEFAULT_CONTEXT)
    writer.add_embedding_length(model.width)
    writer.add_block_count(model.layers)
    writer.add_feed_forward_length(model.feed_forward)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads or model.heads)
    writer.add_layer_norm_rms_eps(model.norm_epsilon)
    if model.head_width * model.heads != model.width:
        writer.add_key_length(model.head_width)
        writer.add_value_length(model.head_width)
    writer.add_rope_dimension_count(model.head_width)
    add_rotary_positions(writer, model.positions, model.head_width)


def _add_tokenizer(writer: "GGUFWriter", folder: Path, config: Config, model: DecoderOnlyConfig) -> list[str]:
    """Add tokenizer, special tokens and chat template; return notes."""
    tokens = config.tokens
    writer.add_eos_token_id(tokens.end)
    writer.add_pad_token_id(tokens.pad)
    writer.add_unk_token_id(tokens.unknown)
    writer.add_bos_token_id(tokens.start)
    writer.add_add_bos_token(tokens.start != tokens.end)
    if tokens.other_ends:
        writer.add_eot_token_id(tokens.other_ends[0])
    if (folder / CHAT_TEMPLATE_FILE).exists():
        writer.add_chat_template(read_file(folder / CHAT_TEMPLATE_FILE).decode())
    tokenizer = copy_tokenizers(folder, TOKENIZER_FILE).by_file.get(TOKENIZER_FILE)
    entries: dict[str, Any] | None = None if tokenizer is None else export_tokenizer(tokenizer, model.vocab_size)
    if entries is None:
        writer.add_tokenizer_model("no_vocab")
        what = "The model has no tokenizer" if tokenizer is None else "The tokenizer is not a BPE of GGUF"
        return [f"{what}, so the file has none: use it with token ids."]
    writer.add_tokenizer_model(entries["model"])
    writer.add_tokenizer_pre(entries["pre"])
    writer.add_token_list(entries["tokens"])
    writer.add_token_types(entries["token_type"])
    if "scores" in entries:
        writer.add_token_scores(entries["scores"])
        writer.add_add_space_prefix(entries["add_space_prefix"])
    elif entries["merges"]:
        writer.add_token_merges(entries["merges"])
    return []
