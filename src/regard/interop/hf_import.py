"""A local Hugging Face folder becomes a model folder of ours: GPT-2, BERT and Marian, without transformers.

    imported = import_folder("opus-mt-en-it", "models/en-it")

The way is the same for all three: their settings become ours, our network says which tensors it wants, the family's
table says which of theirs they are made of. Every tensor of theirs is used, or is known to hold nothing that was
learned, or is reported as left out. What our network cannot hold is refused before anything is written.
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
from regard.interop.hf_folder import CONFIG, FLOAT_TYPES, HFConfig
from regard.interop.hf_spec import ImportPlan
from regard.interop.marian import import_marian
from regard.interop.tensor_mapping import to_huggingface, to_regard
from regard.models import Network, save
from regard.models.assembly import build_meta
from regard.models.folder_files import TARGET_TOKENIZER_FILE, read_json
from regard.models.weights import assign_tensors, shape_text

IMPORTERS: dict[str, Callable[[Path, HFConfig], ImportPlan]] = {
    "bert": import_bert,
    "gpt2": import_gpt2,
    "marian": import_marian,
}


class SkippedTensor(NamedTuple):
    """A tensor that found no place in our network, and why."""

    tensor: str
    reason: str


@dataclass(frozen=True)
class ImportReport:
    """What came of an import."""

    folder: Path
    kind: str  # gpt2, bert or marian
    parameters: int
    left_out: tuple[SkippedTensor, ...]
    notes: tuple[str, ...]  # for the user: what differs, what was missing


def import_huggingface(source: str | Path, out: str | Path) -> ImportReport:
    """Read a Hugging Face folder and write a model folder that `regard.load` reads."""
    source, out = Path(source), Path(out)
    kind, settings = _read_settings(source)
    plan = IMPORTERS[kind](source, settings)
    network = build_meta(plan.model)  # shapes only: every number comes from the file
    _check(plan, network)
    ours = to_regard(plan.rows, plan.weights.tensors)
    assign_tensors(network, {name: tensor.float() for name, tensor in ours.items()})
    save(
        out,
        network,
        Config(model=plan.model, tokens=_known_tokens(plan)),
        origin=f"Imported from the Hugging Face folder {source.resolve().name} ({kind}).",
        extra_files=plan.tokenizers.files,
    )
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return ImportReport(out, kind, parameters, _skipped_tensors(plan), tuple(_notes(plan)))


def _read_settings(folder: Path) -> tuple[str, HFConfig]:
    if not folder.is_dir():
        raise ModelError(f"{folder}: is not a folder; give the path of a Hugging Face model folder.")
    settings = HFConfig(folder / CONFIG, read_json(folder / CONFIG))
    if "format" in settings.values and "regard" in settings.values:
        raise ModelError(f"{settings.path}: is regard's own, so the folder needs no import; load it as it is.")
    if settings.get("auto_map"):
        raise settings.wrong("auto_map", "asks for code of its own, and regard runs none; choose a model without it")
    kind = settings.get("model_type")
    if not isinstance(kind, str) or kind not in IMPORTERS:
        raise settings.wrong("model_type", f"is none that regard imports; it imports {', '.join(IMPORTERS)}")
    return kind, settings


def _check(plan: ImportPlan, network: Network) -> None:
    """Complain about the first tensor that our network wants and the file lacks, or has in another shape or type."""
    weights = plan.weights
    for name, wanted in to_huggingface(plan.rows, network.state_dict()).items():
        given, shown = weights.tensors.get(name), weights.shown(name)
        if given is None:
            raise ModelError(
                f"{weights.path}: has no tensor {shown}, which {CONFIG} beside it asks for; copy the folder again."
            )
        if given.shape != wanted.shape:
            raise ModelError(
                f"{weights.path}: {shown} has shape {shape_text(given)}, but {CONFIG} beside it "
                f"asks for {shape_text(wanted)}; copy the folder again."
            )
        if given.dtype not in FLOAT_TYPES:
            raise ModelError(
                f"{weights.path}: {shown} holds {str(given.dtype).removeprefix('torch.')} numbers, and regard reads "
                "16-, 32- and 64-bit floats; save the model without quantisation."
            )


def _known_tokens(plan: ImportPlan) -> SpecialTokensConfig:
    """The special tokens; for one whose id the network does not know, the end of a text stands in, with a note."""
    size = max(plan.model.vocab_size, getattr(plan.model, "target_vocab_size", None) or 0)
    end = plan.tokens.end if plan.tokens.end < size else size - 1
    unknown = {name: number for name, number in plan.tokens if number is not None and number >= size}
    mask = unknown.pop("mask", None)  # nothing can stand in for it
    if mask is not None:
        plan.notes.append(f"The mask token has id {mask}, past the network's last, {size - 1}; it is left out.")
    for name, number in unknown.items():
        plan.notes.append(f"The {name} token has id {number}, past the network's last, {size - 1}; {end} stands in.")
    without = {"mask": None} if mask is not None else {}
    return plan.tokens.model_copy(update=dict.fromkeys(unknown, end) | without)


def _skipped_tensors(plan: ImportPlan) -> tuple[SkippedTensor, ...]:
    used = {name for row in plan.rows for name in row.theirs}
    return tuple(
        SkippedTensor(plan.weights.shown(name), _reason(plan, name))
        for name in sorted(plan.weights.tensors)
        if name not in used and not re.fullmatch(plan.nothing, name)
    )


def _reason(plan: ImportPlan, name: str) -> str:
    reasons = (why for beginning, why in plan.no_place.items() if name.startswith(beginning))
    return next(reasons, f"{CONFIG} describes a network without it")


def _notes(plan: ImportPlan) -> list[str]:
    model, notes = plan.model, [*plan.notes, *plan.tokenizers.notes]
    target = model.target_vocab_size if isinstance(model, EncoderDecoderConfig) else None
    for name, tokenizer in plan.tokenizers.by_file.items():
        known = (target if name == TARGET_TOKENIZER_FILE else None) or model.vocab_size
        highest = max(tokenizer.get_vocab().values(), default=0)
        if highest >= known:
            notes.append(f"{name} has ids up to {highest}, but the network knows only those below {known}.")
    return notes
