"""Import of local Hugging Face folders (GPT-2, BERT, Marian) as model folders, without transformers.

    report = import_huggingface("opus-mt-en-it", "models/en-it")

The settings of the folder become a config, our network defines which tensors it needs, and the table of the family maps
them to those of the file. Every tensor of the file is used, known not to be learned, or reported as skipped. A folder
that our networks cannot represent is refused before anything is written.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from regard.config import Config, EncoderDecoderConfig, SpecialTokensConfig
from regard.errors import ModelError
from regard.interop.bert import import_bert
from regard.interop.gpt2 import import_gpt2
from regard.interop.hf_folder import FLOAT_TYPES, HFConfig
from regard.interop.hf_spec import ImportPlan, to_huggingface, to_regard
from regard.interop.marian import import_marian
from regard.models import Network, save
from regard.models.assembly import build_meta
from regard.models.folder import assign_tensors, shape_text
from regard.models.folder_files import CONFIG_FILE, TARGET_TOKENIZER_FILE, read_json

IMPORTERS: dict[str, Callable[[Path, HFConfig], ImportPlan]] = {
    "bert": import_bert,
    "gpt2": import_gpt2,
    "marian": import_marian,
}


class SkippedTensor(NamedTuple):
    """A tensor of the file that our network does not have, and why."""

    tensor: str
    reason: str


@dataclass(frozen=True)
class ImportReport:
    """The result of an import."""

    folder: Path
    kind: str
    """gpt2, bert or marian"""
    parameters: int
    skipped: tuple[SkippedTensor, ...]
    notes: tuple[str, ...]
    """Differences from the original, and what was missing."""


def import_huggingface(source: str | Path, out: str | Path) -> ImportReport:
    """Convert a Hugging Face folder to a model folder that `regard.load` reads.

    Args:
        source: A local folder with `config.json` and `model.safetensors`.
        out: The model folder to write, which must not exist.
    """
    source, out = Path(source), Path(out)
    kind, config = _read_config(source)
    plan = IMPORTERS[kind](source, config)
    network = build_meta(plan.model)  # shapes only: all values come from the file
    _check_tensors(plan, network)
    tensors = to_regard(plan.mappings, plan.weights.tensors)
    assign_tensors(network, {name: tensor.float() for name, tensor in tensors.items()})
    save(
        out,
        network,
        Config(model=plan.model, tokens=_known_tokens(plan)),
        origin=f"Imported from the Hugging Face folder {source.resolve().name} ({kind}).",
        extra_files=plan.tokenizers.files,
    )
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return ImportReport(out, kind, parameters, _skipped_tensors(plan), tuple(_notes(plan)))


def _read_config(folder: Path) -> tuple[str, HFConfig]:
    if not folder.is_dir():
        raise ModelError(f"{folder}: is not a folder; pass the path of a Hugging Face model folder.")
    config = HFConfig(folder / CONFIG_FILE, read_json(folder / CONFIG_FILE))
    if "format" in config.values and "regard" in config.values:
        raise ModelError(f"{config.path}: is a config of regard, so the folder needs no import; load it directly.")
    if config.get("auto_map"):
        raise config.error("auto_map", "needs custom code, which regard does not run; choose a model without it")
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in IMPORTERS:
        raise config.error("model_type", f"cannot be imported; regard imports {', '.join(IMPORTERS)}")
    return kind, config


def _check_tensors(plan: ImportPlan, network: Network) -> None:
    """Raise ModelError for the first tensor that is missing, or has another shape or type."""
    weights = plan.weights
    for name, expected in to_huggingface(plan.mappings, network.state_dict()).items():
        tensor, file_name = weights.tensors.get(name), weights.name_in_file(name)
        if tensor is None:
            raise ModelError(
                f"{weights.path}: has no tensor {file_name}, which {CONFIG_FILE} requires; copy the folder again."
            )
        if tensor.shape != expected.shape:
            raise ModelError(
                f"{weights.path}: {file_name} has shape {shape_text(tensor)}, but {CONFIG_FILE} requires "
                f"{shape_text(expected)}; copy the folder again."
            )
        if tensor.dtype not in FLOAT_TYPES:
            raise ModelError(
                f"{weights.path}: {file_name} has type {str(tensor.dtype).removeprefix('torch.')}, and regard reads "
                "16-, 32- and 64-bit floats; save the model without quantization."
            )


def _known_tokens(plan: ImportPlan) -> SpecialTokensConfig:
    """Return the special tokens; those outside of the vocabulary are replaced by the end token, with a note."""
    size = max(plan.model.vocab_size, getattr(plan.model, "target_vocab_size", None) or 0)
    end = plan.tokens.end if plan.tokens.end < size else size - 1
    outside = {name: token_id for name, token_id in plan.tokens if token_id is not None and token_id >= size}
    mask = outside.pop("mask", None)  # it cannot be replaced
    limit = f"outside of the network's vocabulary of {size}"
    if mask is not None:
        plan.notes.append(f"The mask token has id {mask}, {limit}; it is omitted.")
    for name, token_id in outside.items():
        plan.notes.append(f"The {name} token has id {token_id}, {limit}; {end} is used.")
    removed = {"mask": None} if mask is not None else {}
    return plan.tokens.model_copy(update=dict.fromkeys(outside, end) | removed)


def _skipped_tensors(plan: ImportPlan) -> tuple[SkippedTensor, ...]:
    used = {hf_name for entry in plan.mappings for hf_name in entry.hf_names}
    return tuple(
        SkippedTensor(plan.weights.name_in_file(name), _skip_reason(plan, name))
        for name in sorted(plan.weights.tensors)
        if name not in used and not re.fullmatch(plan.ignored, name)
    )


def _skip_reason(plan: ImportPlan, name: str) -> str:
    reasons = (reason for prefix, reason in plan.unsupported.items() if name.startswith(prefix))
    return next(reasons, f"{CONFIG_FILE} describes a network without it")


def _notes(plan: ImportPlan) -> list[str]:
    model, notes = plan.model, [*plan.notes, *plan.tokenizers.notes]
    target_size = model.target_vocab_size if isinstance(model, EncoderDecoderConfig) else None
    for name, tokenizer in plan.tokenizers.by_file.items():
        size = (target_size if name == TARGET_TOKENIZER_FILE else None) or model.vocab_size
        highest = max(tokenizer.get_vocab().values(), default=0)
        if highest >= size:
            notes.append(f"{name} has ids up to {highest}, but the network has only {size} tokens.")
    return notes
