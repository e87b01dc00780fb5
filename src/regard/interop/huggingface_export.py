"""A model folder of ours becomes one that `transformers` loads with no code of ours, written without it.

    to_huggingface("runs/en-it/best", "en-it-hf")
    transformers.AutoModelForSeq2SeqLM.from_pretrained("en-it-hf")

The tables that importing reads are read the other way round. What a class of theirs cannot hold is refused before
anything is written.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save_file

from regard.config import Config, DecoderOnlyConfig, EncoderDecoderConfig, EncoderOnlyConfig
from regard.errors import ModelError
from regard.interop.bert_export import to_bert, why_not_bert
from regard.interop.ctranslate2_limits import why_not
from regard.interop.equivalents import Tensors
from regard.interop.gpt2_export import to_gpt2, why_not_gpt2
from regard.interop.marian_export import to_marian, why_not_marian
from regard.interop.new_folder import new_folder
from regard.interop.source import CONFIG, WEIGHTS
from regard.interop.theirs import Theirs
from regard.interop.tokenizer_export import exported_tokenizers
from regard.models import load
from regard.models.folder_files import read_config

GENERATION = "generation_config.json"


@dataclass(frozen=True)
class Exported:
    """What came of an export."""

    folder: Path
    kind: str  # the class of theirs
    notes: tuple[str, ...]  # for the user: what differs, what was missing


def to_huggingface(folder: str | Path, out: str | Path) -> Exported:
    """Write a model as a folder of Hugging Face's: Marian, GPT-2 or BERT, whichever reads and writes as it does."""
    folder, out = Path(folder), Path(out)
    config = read_config(folder)
    reason = why_not_huggingface(config)
    if reason is not None:
        instead = "export it to ctranslate2" if why_not(config) is None else "use it with regard itself"
        raise ModelError(f"{folder}: cannot be exported to Hugging Face, because {reason}; {instead}.")
    tensors = {name: tensor.float() for name, tensor in load(folder).network.state_dict().items()}
    theirs = _theirs(config, tensors)
    tokenizers, settings, notes = exported_tokenizers(folder, theirs)
    documents = {CONFIG: {**theirs.settings, "dtype": "float32"}, **theirs.files, **settings}
    if theirs.generation is not None:
        documents[GENERATION] = theirs.generation
    with new_folder(out) as draft:
        for name, content in documents.items():
            (draft / name).parent.mkdir(exist_ok=True)
            (draft / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
        for name, written in tokenizers.files.items():
            (draft / name).write_bytes(written)
        whole = {name: tensor.clone().contiguous() for name, tensor in theirs.tensors.items()}  # none shares memory
        save_file(whole, draft / WEIGHTS, {"format": "pt"})
    return Exported(out, theirs.settings["architectures"][0], (*theirs.notes, *notes))


def why_not_huggingface(config: Config) -> str | None:
    """Why none of their classes can hold a model; None if one can."""
    match config.model:
        case EncoderDecoderConfig() as model:
            return why_not_marian(config, model)
        case DecoderOnlyConfig() as model:
            return why_not_gpt2(model)
        case EncoderOnlyConfig() as model:
            return why_not_bert(model)
        case model:
            return f"transformers has no class for the kind {model.family}"


def _theirs(config: Config, tensors: Tensors) -> Theirs:
    match config.model:
        case EncoderDecoderConfig() as model:
            return to_marian(config, model, tensors)
        case DecoderOnlyConfig() as model:
            return to_gpt2(config, model, tensors)
        case EncoderOnlyConfig() as model:
            return to_bert(config, model, tensors)
        case model:
            raise TypeError(f"no class of theirs holds {model.family}, as `why_not_huggingface` has said")
