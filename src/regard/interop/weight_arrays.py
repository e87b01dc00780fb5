"""The weights of a model folder as NumPy arrays, checked against its settings, without torch.

Only networks that CTranslate2 supports are described here; `models/folder.py` reads the weights of all networks with
torch. Names and shapes are those of the tensors that `regard.models.build` makes for the same settings.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize

from regard.config import (
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    LearnedPositionsConfig,
    RelativePositionsConfig,
)
from regard.errors import ModelError
from regard.files import check_regular_file
from regard.interop.weight_transforms import Array
from regard.models.adapter_files import ADAPTER_WEIGHTS_FILE, adapter_base, check_lora_shapes, read_adapter
from regard.models.folder_files import CONFIG_FILE, check_checksum, missing_file, read_weight_files, unreadable_file

Shape = tuple[int, ...]
FLOAT_TYPES = {"F16": np.float16, "F32": np.float32, "F64": np.float64}  # besides BF16, which NumPy does not have


def read_arrays(folder: Path, model: EncoderDecoderConfig | DecoderOnlyConfig) -> dict[str, Array]:
    """Return all arrays of a network in float32, by name; shared ones appear under each of their names."""
    adapter = read_adapter(folder)
    path, stored = read_weight_files(folder if adapter is None else adapter_base(folder, adapter), _read_file)
    expected = stored_shapes(model)
    for name, shape in expected.items():
        if name not in stored:
            raise ModelError(f"{path}: has no tensor {name}, which {CONFIG_FILE} requires.")
        if tuple(stored[name]["shape"]) != shape:
            sizes = ["×".join(map(str, sizes)) for sizes in (stored[name]["shape"], shape)]
            raise ModelError(f"{path}: has {name} of shape {sizes[0]}, but {CONFIG_FILE} requires {sizes[1]}.")
    surplus = next((name for name in stored if name not in expected), None)
    if surplus is not None:
        raise ModelError(f"{path}: has a tensor {surplus}, which {CONFIG_FILE} does not describe.")
    types = {tensor["dtype"] for tensor in stored.values()}
    if len(types) > 1 or not types <= {*FLOAT_TYPES, "BF16"}:
        raise ModelError(
            f"{path}: has tensors of the types {', '.join(sorted(types))}; all should have one float type of 16 to 64 "
            "bits."
        )
    arrays = {name: _to_float32(stored[name]["data"], stored[name]["dtype"], shape) for name, shape in expected.items()}
    if adapter is not None:
        path = folder / ADAPTER_WEIGHTS_FILE
        own = {
            name: _to_float32(tensor["data"], tensor["dtype"], tuple(tensor["shape"]))
            for name, tensor in _read_file(path).items()
        }
        for name in adapter.modules:
            parts = arrays.get(f"{name}.weight"), own.get(f"{name}.lora_a"), own.get(f"{name}.lora_b")
            check_lora_shapes(path, name, *(None if part is None else part.shape for part in parts))
            arrays[f"{name}.weight"] = parts[0] + np.float32(adapter.scale) * (parts[2] @ parts[1])  # type: ignore[operator]
    for name, shared in ("decoder.embedding", "encoder.embedding"), ("output", "decoder.embedding"):
        if f"{name}.weight" not in arrays:
            arrays[f"{name}.weight"] = arrays[f"{shared}.weight"]
    return arrays


def _read_file(path: Path) -> dict[str, Any]:
    """Return the tensors of a safetensors file, by name, each with its shape, type and bytes."""
    try:
        check_regular_file(path)
        check_checksum(path)
        return dict(deserialize(path.read_bytes()))  # type: ignore[no-untyped-call]
    except FileNotFoundError:
        raise missing_file(path) from None
    except OSError as error:
        raise unreadable_file(path, error) from None
    except (SafetensorError, ValueError) as error:
        raise ModelError(f"{path}: is damaged ({error}); copy the folder again.") from None


def _to_float32(data: bytes, dtype: str, shape: Shape) -> Array:
    if dtype == "BF16":  # the upper half of a float32
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(data, np.dtype(FLOAT_TYPES[dtype]).newbyteorder("<")).astype(np.float32).reshape(shape)


def stored_shapes(model: EncoderDecoderConfig | DecoderOnlyConfig) -> dict[str, Shape]:
    """Return the shapes of the tensors in a network's file; a shared tensor appears once, under its first name."""
    shapes: dict[str, Shape] = {}
    vocabulary = model.vocab_size
    if isinstance(model, EncoderDecoderConfig):
        shapes |= _stack_shapes("encoder", model, model.layers, vocabulary)
        vocabulary = model.target_vocab_size or vocabulary
        shapes |= _stack_shapes("decoder", model, model.decoder_layers or model.layers, vocabulary, cross=True)
        if model.share_embeddings:
            del shapes["decoder.embedding.weight"]
    else:
        shapes |= _stack_shapes("decoder", model, model.layers, vocabulary)
    if not model.tie_output:
        shapes["output.weight"] = (vocabulary, model.width)
    if model.output_bias:
        shapes["output.bias"] = (vocabulary,)
    return shapes


def _stack_shapes(
    stack: str, model: EncoderDecoderConfig | DecoderOnlyConfig, layers: int, vocabulary: int, cross: bool = False
) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {f"{stack}.embedding.weight": (vocabulary, model.embedding_width)}
    if isinstance(model.positions, LearnedPositionsConfig):
        size = model.positions.vector_width(model.width)
        shapes[f"{stack}.embedding.positions.weight"] = (model.positions.max_length, size)
    norms = [f"{stack}.embedding.norm"] * model.embedding_norm + [f"{stack}.norm"] * (model.norm_order == "pre")
    for index in range(layers):
        layer = f"{stack}.layers.{index}"
        for name, rows, columns, bias in _linear_layers(model, cross):
            shapes[f"{layer}.{name}.weight"] = (rows, columns)
            if bias:
                shapes[f"{layer}.{name}.bias"] = (rows,)
        if isinstance(model.positions, RelativePositionsConfig):
            distances = 2 * model.positions.max_distance + 1
            shapes[f"{layer}.attention.positions.keys"] = (distances, model.key_width or model.head_width)
            shapes[f"{layer}.attention.positions.values"] = (distances, model.head_width)
        if model.qk_norm and model.norm_affine:
            head = (model.key_width or model.head_width,)
            shapes |= {f"{layer}.attention.{name}_norm.weight": head for name in ("query", "key")}
        sublayers = ["attention", *(["cross_attention"] if cross else []), "feed_forward"]
        norms += [f"{layer}.{sublayer}_residual.norm" for sublayer in sublayers]
    if model.norm_affine:
        for name in ("weight", "bias") if model.norm == "layer" else ("weight",):
            shapes |= {f"{norm}.{name}": (model.width,) for norm in norms}
    return shapes


def _linear_layers(
    model: EncoderDecoderConfig | DecoderOnlyConfig, cross: bool
) -> Iterator[tuple[str, int, int, bool]]:
    """Yield name, rows, columns and whether it has a bias, for each linear layer of a Transformer layer."""
    width, hidden, values = model.width, model.feed_forward, model.heads * model.head_width
    bias, output_bias = bool(model.attention_bias), model.attention_bias is True
    kv_heads, key_width = model.kv_heads or model.heads, model.key_width or model.head_width
    queries, keys_values = model.heads * key_width, kv_heads * (key_width + model.head_width)
    yield "attention.query_key_value", queries + keys_values, width, bias
    yield "attention.output", width, values, output_bias
    if cross:
        yield "cross_attention.query", queries, width, bias
        yield "cross_attention.key_value", keys_values, width, bias
        yield "cross_attention.output", width, values, output_bias
    gated = model.activation == "swiglu"
    yield "feed_forward.inner", 2 * hidden if gated else hidden, width, not gated
    yield "feed_forward.output", width, hidden, not gated
