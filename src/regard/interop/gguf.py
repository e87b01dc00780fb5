"""Import of Llama and Qwen from GGUF, the file format of llama.cpp; `gguf_export.py` writes it.

    report = import_gguf_file("model.gguf", "models/model")

In its architecture `llama`, neighboring entries of queries and keys are rotated together, and in Hugging Face's Llama
those that are half a head apart. The rows of the query and key matrices are in another order therefore, which is
changed in both directions.

H heads · D width of a head · C model width
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from regard.config import Config, DecoderOnlyConfig, RotaryPositionsConfig, SpecialTokensConfig
from regard.config.errors import explain_invalid_network
from regard.data.chat_templates import CHAT_TEMPLATE_FILE, CHAT_TOKENS_FILE, MAX_TEMPLATE_BYTES, special_tokens_file
from regard.errors import ModelError
from regard.interop.gguf_file import COPY_AGAIN, GGUFFile, import_gguf, read_gguf
from regard.interop.gguf_rotary import FREQUENCIES, read_scaling
from regard.interop.gguf_tokenizer import CONTROL, END_TOKENS, adds_start, import_tokenizer, token_types
from regard.interop.hf_tokenizers import ImportedTokenizers
from regard.interop.huggingface import ImportReport
from regard.interop.weight_transforms import Array, separate
from regard.models import save
from regard.models.assembly import build_meta
from regard.models.folder import assign_tensors
from regard.models.folder_files import TOKENIZER_FILE


@dataclass(frozen=True)
class Architecture:
    """What distinguishes an architecture of GGUF from the others."""

    name: str
    interleaved: bool = False
    """Whether neighboring entries of queries and keys are rotated together."""
    biases: bool = False
    """Whether queries, keys and values have biases."""
    qk_norm: bool = False
    """Whether queries and keys are normalized in each head."""


ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        Architecture("llama", interleaved=True),
        Architecture("qwen2", biases=True),
        Architecture("qwen3", qk_norm=True),
    )
}
MAX_SIZE = 2**24


@dataclass(frozen=True)
class GGUFMapping:
    """One of our tensors, and the tensors of GGUF that are stacked in it with the numbers of rows and rotated heads."""

    name: str
    parts: tuple[tuple[str, int, int], ...]
    shape: tuple[int, ...]
    """Of each row."""


def gguf_mappings(model: DecoderOnlyConfig) -> Iterator[GGUFMapping]:
    """Yield our tensors and those of GGUF; heads are 0 where no rows are rotated."""
    width, heads, kv_heads, head_width = model.width, model.heads, model.kv_heads or model.heads, model.head_width
    queries, keys = heads * head_width, kv_heads * head_width
    vocabulary, hidden = model.vocab_size, model.feed_forward
    yield GGUFMapping("decoder.embedding.weight", (("token_embd.weight", vocabulary, 0),), (width,))
    for n in range(model.layers):
        ours, theirs = f"decoder.layers.{n}", f"blk.{n}"
        gated = ((f"{theirs}.ffn_gate.weight", hidden, 0), (f"{theirs}.ffn_up.weight", hidden, 0))
        yield GGUFMapping(f"{ours}.attention_residual.norm.weight", ((f"{theirs}.attn_norm.weight", width, 0),), ())
        for kind in ["weight", *(["bias"] if model.attention_bias else [])]:
            fused = (
                (f"{theirs}.attn_q.{kind}", queries, heads),
                (f"{theirs}.attn_k.{kind}", keys, kv_heads),
                (f"{theirs}.attn_v.{kind}", keys, 0),
            )
            yield GGUFMapping(f"{ours}.attention.query_key_value.{kind}", fused, (width,) if kind == "weight" else ())
        for name in ("query", "key") if model.qk_norm else ():
            norm = (f"{theirs}.attn_{name[0]}_norm.weight", head_width, 0)
            yield GGUFMapping(f"{ours}.attention.{name}_norm.weight", (norm,), ())
        output = ((f"{theirs}.attn_output.weight", width, 0),)
        yield GGUFMapping(f"{ours}.attention.output.weight", output, (queries,))
        yield GGUFMapping(f"{ours}.feed_forward_residual.norm.weight", ((f"{theirs}.ffn_norm.weight", width, 0),), ())
        yield GGUFMapping(f"{ours}.feed_forward.inner.weight", gated, (width,))
        yield GGUFMapping(f"{ours}.feed_forward.output.weight", ((f"{theirs}.ffn_down.weight", width, 0),), (hidden,))
    yield GGUFMapping("decoder.norm.weight", (("output_norm.weight", width, 0),), ())
    if not model.tie_output:
        yield GGUFMapping("output.weight", (("output.weight", vocabulary, 0),), (width,))


def import_gguf_file(source: str | Path, out: str | Path) -> ImportReport:
    """Convert a GGUF file of a Llama-like model to a model folder that `regard.load` reads.

    Args:
        source: A GGUF file.
        out: The model folder to write, which must not exist.
    """
    out, file = Path(out), read_gguf(source)
    if out.exists():
        raise ModelError(f"{out}: already exists; choose another name or remove it first.")
    import_gguf(file.path)  # before anything long
    architecture = _read_architecture(file)
    with explain_invalid_network(file.path):
        model = _read_model(file, architecture)
    mappings = list(gguf_mappings(model))
    _check_tensors(file, mappings)
    notes = list[str]()
    tokenizers = import_tokenizer(file)
    tokens = _read_tokens(file, model, tokenizers, notes)
    network = build_meta(model)  # shapes only: all values come from the file
    assign_tensors(network, _read_tensors(file, architecture, mappings))
    context = _size(file, f"{architecture.name}.context_length", 2048)
    types = sorted({info.type_name for info in file.tensors.infos.values()})
    save(
        out,
        network,
        Config.model_validate({"model": model, "tokens": tokens, "data": {"context_length": context}}),
        origin=f"Imported from the GGUF file {file.path.name} ({', '.join(types)}).",
        extra_files=tokenizers.files | _chat_template(file, tokenizers, notes),
    )
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return ImportReport(out, f"gguf {architecture.name}", parameters, (), (*tokenizers.notes, *notes))


def _read_tensors(file: GGUFFile, architecture: Architecture, mappings: list[GGUFMapping]) -> dict[str, torch.Tensor]:
    def read(name: str, heads: int) -> Array:
        tensor = file.tensors[name]
        return separate(tensor, heads) if heads and architecture.interleaved else tensor

    return {
        entry.name: torch.from_numpy(
            np.ascontiguousarray(np.concatenate([read(name, heads) for name, _, heads in entry.parts]))
        )
        for entry in mappings
    }


def _read_architecture(file: GGUFFile) -> Architecture:
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise ModelError(
            f"{file.path}: general.architecture = {name!r} cannot be imported; regard imports "
            f"{', '.join(ARCHITECTURES)} (Mistral and SmolLM2 are llama)."
        )
    return ARCHITECTURES[name]


def _read_model(file: GGUFFile, architecture: Architecture) -> DecoderOnlyConfig:
    """Return the network that the metadata describes; ModelError if regard does not have it."""
    prefix = architecture.name
    embedding = file.tensors.infos.get("token_embd.weight")
    if embedding is None:
        raise ModelError(f"{file.path}: has no tensor token_embd.weight; {COPY_AGAIN}.")
    width, heads = (_size(file, f"{prefix}.{name}") for name in ("embedding_length", "attention.head_count"))
    kv_heads = _size(file, f"{prefix}.attention.head_count_kv", heads)
    if width % heads or heads % kv_heads:
        raise ModelError(
            f"{file.path}: {prefix}.attention.head_count = {heads} should divide {prefix}.embedding_length = {width}, "
            f"and {prefix}.attention.head_count_kv = {kv_heads} should divide it; {COPY_AGAIN}."
        )
    head_width = _size(file, f"{prefix}.attention.key_length", width // heads)
    _require(file, f"{prefix}.rope.dimension_count", head_width, "regard rotates whole heads")
    _require(file, f"{prefix}.attention.value_length", head_width, "keys and values of a head are equally wide")
    _require(file, f"{prefix}.expert_count", 0, "regard imports GGUF files without experts")
    _require(file, f"{prefix}.attention.sliding_window", 0, "regard imports full attention")
    base = _number(file, f"{prefix}.rope.freq_base", 1, 1e12, 10_000.0)
    return DecoderOnlyConfig(
        vocab_size=embedding.shape[0],
        width=width,
        layers=_size(file, f"{prefix}.block_count", maximum=1000),
        heads=heads,
        kv_heads=None if kv_heads == heads else kv_heads,
        value_width=None if head_width == width // heads else head_width,
        attention_bias="qkv" if architecture.biases else False,
        qk_norm=architecture.qk_norm,
        feed_forward=_size(file, f"{prefix}.feed_forward_length"),
        activation="swiglu",
        norm="rms",
        norm_order="pre",
        norm_epsilon=_number(file, f"{prefix}.attention.layer_norm_rms_epsilon", 0, 1),
        positions=RotaryPositionsConfig(
            layout="halves", base=base, scaling=read_scaling(file, prefix, head_width, base)
        ),
        dropout=0.0,
        scale_embeddings=False,
        tie_output="output.weight" not in file.tensors,
    )


def _require(file: GGUFFile, name: str, value: int | str, fact: str) -> None:
    """Raise ModelError if the metadata has another value; `fact` says what regard has instead."""
    if file.metadata.get(name, value) != value:
        raise ModelError(f"{file.path}: {name} = {file.metadata[name]!r} cannot be imported: {fact} ({value!r}).")


def _size(file: GGUFFile, name: str, default: int | None = None, maximum: int = MAX_SIZE) -> int:
    value = file.metadata.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= maximum:
        raise ModelError(f"{file.path}: {name} = {value!r} should be an integer from 1 to {maximum:,}; {COPY_AGAIN}.")
    return value


def _number(file: GGUFFile, name: str, low: float, high: float, default: float | None = None) -> float:
    value = file.metadata.get(name, default)
    if not isinstance(value, float) or not low < value < high:
        raise ModelError(f"{file.path}: {name} = {value!r} should be between {low:g} and {high:g}; {COPY_AGAIN}.")
    return float(str(np.float32(value)))  # 1e-05, stored as 9.999999747378752e-06


def _check_tensors(file: GGUFFile, mappings: list[GGUFMapping]) -> None:
    """Raise ModelError for the first tensor that is missing, has another shape, or is not in our network."""
    infos = file.tensors.infos
    expected = {name: (rows, *entry.shape) for entry in mappings for name, rows, _ in entry.parts}
    for name, shape in expected.items():
        if name not in infos:
            raise ModelError(f"{file.path}: has no tensor {name}, which its metadata requires; {COPY_AGAIN}.")
        if infos[name].shape != shape:
            sizes = ["×".join(map(str, sizes)) for sizes in (infos[name].shape, shape)]
            raise ModelError(
                f"{file.path}: {name} has shape {sizes[0]}, but its metadata requires {sizes[1]}; {COPY_AGAIN}."
            )
    surplus = next((name for name in infos if name not in expected and name != FREQUENCIES), None)
    if surplus is not None:
        raise ModelError(f"{file.path}: has a tensor {surplus}, which this network does not have.")


def _read_tokens(
    file: GGUFFile, model: DecoderOnlyConfig, tokenizers: ImportedTokenizers, notes: list[str]
) -> SpecialTokensConfig:
    """Return the special tokens; the end token is also the start token if texts have none before them."""
    ids = {
        name: _token(file, f"tokenizer.ggml.{name}_token_id", model.vocab_size)
        for name in ("bos", "eos", "eot", "eom", "unknown", "padding")
    }
    tokenizer = tokenizers.by_file.get(TOKENIZER_FILE)
    end = ids["eos"]
    if end is None:
        end = model.vocab_size - 1
        notes.append(f"The file does not define the end token; id {end} is used.")
    others = [ids["eot"], ids["eom"]]
    if tokenizer is not None:
        kinds = token_types(file, tokenizer.get_vocab_size())
        named = [tokenizer.token_to_id(name) for name in END_TOKENS]
        others += [token for token in named if token is not None and kinds[token] == CONTROL]
    other_ends = tuple(dict.fromkeys(token for token in others if token not in (None, end)))
    return SpecialTokensConfig.model_validate(
        {
            "pad": end if ids["padding"] is None else ids["padding"],
            "unknown": end if ids["unknown"] is None else ids["unknown"],
            "start": ids["bos"] if adds_start(file) and ids["bos"] is not None else end,
            "end": end,
            "other_ends": other_ends,
        }
    )


def _token(file: GGUFFile, name: str, vocab_size: int) -> int | None:
    value = file.metadata.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < vocab_size:
        raise ModelError(f"{file.path}: {name} = {value!r} is not one of its {vocab_size} tokens; {COPY_AGAIN}.")
    return value


def _chat_template(file: GGUFFile, tokenizers: ImportedTokenizers, notes: list[str]) -> dict[str, bytes]:
    """Return the files for the chat template, which is not executed here, and for the names that it uses."""
    template = file.metadata.get("tokenizer.chat_template")
    if not isinstance(template, str):
        return {}
    if len(template.encode()) > MAX_TEMPLATE_BYTES:
        notes.append(f"The chat template has more than {MAX_TEMPLATE_BYTES // 1024} KB; it is omitted.")
        return {}
    tokenizer = tokenizers.by_file.get(TOKENIZER_FILE)
    names: dict[str, str | None] = {}
    if tokenizer is not None:
        for name in ("bos_token", "eos_token"):
            number = _token(file, f"tokenizer.ggml.{name[:3]}_token_id", tokenizer.get_vocab_size())
            names[name] = None if number is None else tokenizer.id_to_token(number)
    return {CHAT_TEMPLATE_FILE: template.encode(), CHAT_TOKENS_FILE: special_tokens_file(names)}
