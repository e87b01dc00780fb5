"""Scaled rotary positions in GGUF: `linear` and `yarn` in the metadata, Llama 3's as a tensor.

The tensor `rope_freqs.weight` (D/2,) has the number that divides each frequency. The settings that it was made with
follow from its values and the number of turns at which frequencies are kept and divided, 4 and 1 unless the file says
otherwise in `regard.rope.high_turns` and `regard.rope.low_turns`, which other programs ignore.

D width of a query or key
"""

import math
from typing import TYPE_CHECKING

import numpy as np
from pydantic import ValidationError

from regard.config import (
    LinearScalingConfig,
    Llama3ScalingConfig,
    RotaryPositionsConfig,
    ScalingConfig,
    YarnScalingConfig,
)
from regard.config.errors import first_problem
from regard.errors import ModelError
from regard.interop.gguf_file import COPY_AGAIN, GGUFFile
from regard.interop.weight_transforms import Array
from regard.nn.rotary import FrequencyScaling, Llama3Scaling, NtkScaling

if TYPE_CHECKING:
    from gguf import GGUFWriter

FREQUENCIES = "rope_freqs.weight"
LOW_TURNS, HIGH_TURNS = "regard.rope.low_turns", "regard.rope.high_turns"
MAX_LENGTH = 2**24


def add_rotary_positions(writer: "GGUFWriter", positions: RotaryPositionsConfig, head_width: int) -> None:
    """Write base and scaling into the metadata; `frequency_divisors` has what is a tensor."""
    scaling, base = positions.scaling, positions.base
    if scaling is not None and scaling.kind == "ntk":
        base = NtkScaling(scaling.factor).base(head_width, base)
    writer.add_rope_freq_base(base)
    match scaling:
        case LinearScalingConfig():
            writer.add_string(f"{writer.arch}.rope.scaling.type", "linear")
            writer.add_rope_scaling_factor(scaling.factor)
        case YarnScalingConfig():
            writer.add_string(f"{writer.arch}.rope.scaling.type", "yarn")
            writer.add_rope_scaling_factor(scaling.factor)
            writer.add_rope_scaling_orig_ctx_len(scaling.original_length)
            writer.add_rope_scaling_yarn_beta_fast(scaling.fast_turns)
            writer.add_rope_scaling_yarn_beta_slow(scaling.slow_turns)
            if scaling.attention_factor is not None:  # theirs multiplies the default
                factor = scaling.attention_factor / _yarn_magnitude(scaling.factor)
                writer.add_rope_scaling_yarn_attn_factor(factor)
        case Llama3ScalingConfig():
            writer.add_rope_scaling_orig_ctx_len(scaling.original_length)
            writer.add_float32(LOW_TURNS, scaling.low_turns)
            writer.add_float32(HIGH_TURNS, scaling.high_turns)


def frequency_divisors(positions: RotaryPositionsConfig, head_width: int) -> Array | None:
    """Return the numbers (D/2,) that divide the frequencies, where GGUF stores them; None for other scalings."""
    match positions.scaling:
        case Llama3ScalingConfig() as scaling:
            return _llama3_divisors(scaling, head_width, positions.base)
        case _:
            return None


def _llama3_divisors(scaling: Llama3ScalingConfig, head_width: int, base: float) -> Array:
    settings = (scaling.factor, scaling.original_length, scaling.low_turns, scaling.high_turns)
    scaled = Llama3Scaling(*settings).frequencies(head_width, base)
    divisors: Array = (FrequencyScaling().frequencies(head_width, base) / scaled).float().numpy()
    return divisors


def read_scaling(file: GGUFFile, architecture: str, head_width: int, base: float) -> ScalingConfig | None:
    """Return the scaling of a file's rotary positions."""
    prefix = f"{architecture}.rope.scaling"
    kind = file.metadata.get(f"{prefix}.type", "none")
    try:
        if FREQUENCIES in file.tensors.infos:
            return _read_llama3(file, f"{prefix}.original_context_length", head_width, base)
        match kind:
            case "none":
                return None
            case "linear":
                return LinearScalingConfig(factor=_positive(file, f"{prefix}.factor"))
            case "yarn":
                return _read_yarn(file, prefix)
    except ValidationError as error:
        raise ModelError(f"{file.path}: {prefix}: {first_problem(error)}; {COPY_AGAIN}.") from None
    raise ModelError(f"{file.path}: {prefix}.type = {kind!r} cannot be imported; regard has none, linear and yarn.")


def _read_yarn(file: GGUFFile, prefix: str) -> YarnScalingConfig:
    factor = _positive(file, f"{prefix}.factor")
    names = [f"{prefix}.{name}" for name in ("yarn_attn_factor", "attn_factor")]
    multiplier = next((_positive(file, name) for name in names if name in file.metadata), None)
    return YarnScalingConfig(
        factor=factor,
        original_length=_length(file, f"{prefix}.original_context_length"),
        fast_turns=_positive(file, f"{prefix}.yarn_beta_fast", 32.0),
        slow_turns=_positive(file, f"{prefix}.yarn_beta_slow", 1.0),
        attention_factor=None if multiplier in (None, 1.0) else _short(multiplier * _yarn_magnitude(factor)),
    )


def _read_llama3(file: GGUFFile, length_name: str, head_width: int, base: float) -> Llama3ScalingConfig:
    """Return the settings that give the divisors of the file; ModelError if there are none.

    Of a frequency θ that turns L·θ/2π times over the original length L, the fraction (turns − low) / (high − low) is
    kept and the rest is divided by the factor. So each frequency between the two limits gives L.
    """
    divisors = file.tensors[FREQUENCIES].astype(np.float64)
    problem = ModelError(f"{file.path}: {FREQUENCIES} is not the scaling of Llama 3, which regard imports.")
    if divisors.shape != (head_width // 2,) or not (np.isfinite(divisors).all() and divisors.min() > 0):
        raise problem
    factor = _short(float(divisors.max()))
    low, high = _positive(file, LOW_TURNS, 1.0), _positive(file, HIGH_TURNS, 4.0)
    if length_name in file.metadata:
        length = _length(file, length_name)
    else:
        frequencies = FrequencyScaling().frequencies(head_width, base).numpy()
        kept = (1 / divisors - 1 / factor) / (1 - 1 / factor) if factor > 1 else np.ones_like(divisors)
        between = (kept > 1e-4) & (kept < 1 - 1e-4)
        if between.any():
            turns = kept[between] * (high - low) + low
            length = round(float(np.median(turns * 2 * math.pi / frequencies[between])))
        else:  # between the limits, any length gives the same
            highest_divided = frequencies[kept <= 1e-4].max(initial=0.0)
            length = int(2 * math.pi * low / highest_divided) if highest_divided else 1
    if not 0 < length <= MAX_LENGTH:
        raise problem
    scaling = Llama3ScalingConfig(factor=max(factor, 1.0), original_length=length, low_turns=low, high_turns=high)
    if not np.allclose(_llama3_divisors(scaling, head_width, base), divisors, rtol=1e-3):
        raise problem
    return scaling


def _yarn_magnitude(factor: float) -> float:
    return 0.1 * math.log(factor) + 1.0


def _positive(file: GGUFFile, name: str, default: float | None = None) -> float:
    value = file.metadata.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
        raise ModelError(f"{file.path}: {name} = {value!r} should be a number between 0 and 1,000,000; {COPY_AGAIN}.")
    return _short(value)


def _length(file: GGUFFile, name: str) -> int:
    value = file.metadata.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_LENGTH:
        raise ModelError(
            f"{file.path}: {name} = {value!r} should be an integer from 1 to {MAX_LENGTH:,}; {COPY_AGAIN}."
        )
    return value


def _short(value: float) -> float:
    """Return the shortest number that is stored as this float32: 0.1 for 0.10000000149."""
    return float(str(np.float32(value)))
