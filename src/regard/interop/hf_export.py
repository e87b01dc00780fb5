"""A model folder of ours becomes one that `transformers` loads with no code of ours, written without it.

    export_huggingface("runs/en-it/best", "en-it-hf")
    transformers.AutoModelForSeq2SeqLM.from_pretrained("en-it-hf")

The tables that importing reads are read the other way round. What a class of theirs cannot hold is refused before
anything is written.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers import Tokenizer, processors

from regard.config import Config, DecoderOnlyConfig, EncoderDecoderConfig, EncoderOnlyConfig, TransformerConfig
from regard.errors import ModelError
from regard.interop.bert import export_bert, unsupported_by_bert
from regard.interop.ctranslate2_support import unsupported_reason
from regard.interop.gpt2 import export_gpt2, unsupported_by_gpt2
from regard.interop.hf_folder import CONFIG, WEIGHTS
from regard.interop.hf_spec import HFSpec
from regard.interop.hf_tokenizers import TOKENIZER_CONFIG, ImportedTokenizers, copy_tokenizers
from regard.interop.marian import export_marian, unsupported_by_marian
from regard.interop.new_folder import new_export_folder
from regard.interop.weight_transforms import Tensors
from regard.models import load
from regard.models.folder_files import TARGET_TOKENIZER_FILE, TOKENIZER_FILE, read_config
from regard.models.weights import repeat_kv_heads

GENERATION_CONFIG = "generation_config.json"


@dataclass(frozen=True)
class ExportReport:
    """What came of an export."""

    folder: Path
    kind: str  # the class of theirs
    notes: tuple[str, ...]  # for the user: what differs, what was missing


def export_huggingface(folder: str | Path, out: str | Path) -> ExportReport:
    """Write a model as a folder of Hugging Face's: Marian, GPT-2 or BERT, whichever reads and writes as it does."""
    folder, out = Path(folder), Path(out)
    config = read_config(folder)
    reason = unsupported_by_huggingface(config)
    if reason is not None:
        instead = "export it to ctranslate2" if unsupported_reason(config) is None else "use it with regard itself"
        raise ModelError(f"{folder}: cannot be exported to Hugging Face, because {reason}; {instead}.")
    tensors = {name: tensor.float() for name, tensor in load(folder).network.state_dict().items()}
    if isinstance(config.model, TransformerConfig):
        tensors = repeat_kv_heads(tensors, config.model)  # Marian, GPT-2 and BERT have no grouped heads
    theirs = _build_spec(config, tensors)
    tokenizers, settings, notes = export_tokenizers(folder, theirs)
    documents = {CONFIG: {**theirs.settings, "dtype": "float32"}, **theirs.files, **settings}
    if theirs.generation is not None:
        documents[GENERATION_CONFIG] = theirs.generation
    with new_export_folder(out) as draft:
        for name, content in documents.items():
            (draft / name).parent.mkdir(exist_ok=True)
            (draft / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
        for name, written in tokenizers.files.items():
            (draft / name).write_bytes(written)
        whole = {name: tensor.clone().contiguous() for name, tensor in theirs.tensors.items()}  # none shares memory
        save_file(whole, draft / WEIGHTS, {"format": "pt"})
    return ExportReport(out, theirs.settings["architectures"][0], (*theirs.notes, *notes))


def unsupported_by_huggingface(config: Config) -> str | None:
    """Why none of their classes can hold a model; None if one can."""
    match config.model:
        case EncoderDecoderConfig() as model:
            return unsupported_by_marian(config, model)
        case DecoderOnlyConfig() as model:
            return unsupported_by_gpt2(model)
        case EncoderOnlyConfig() as model:
            return unsupported_by_bert(model)
        case model:
            return f"transformers has no class for the kind {model.family}"


def _build_spec(config: Config, tensors: Tensors) -> HFSpec:
    match config.model:
        case EncoderDecoderConfig() as model:
            return export_marian(config, model, tensors)
        case DecoderOnlyConfig() as model:
            return export_gpt2(config, model, tensors)
        case EncoderOnlyConfig() as model:
            return export_bert(config, model, tensors)
        case model:
            raise TypeError(f"no class of theirs holds {model.family}, as `unsupported_by_huggingface` has said")


def export_tokenizers(folder: Path, theirs: HFSpec) -> tuple[ImportedTokenizers, dict[str, Any], list[str]]:
    """The tokenizers of a model folder for a class of theirs, what `tokenizer_config.json` says of them, and notes."""
    tokenizers = copy_tokenizers(folder, TOKENIZER_FILE, TARGET_TOKENIZER_FILE)
    main = tokenizers.by_file.get(TOKENIZER_FILE)
    if main is None:
        return tokenizers, {}, ["The model has no tokenizer, so neither has the exported one: it is used with ids."]
    notes = []
    if not _add_special_tokens(main, theirs.before, theirs.after):
        notes.append("The tokenizer lacks a special token of the model, so it puts none around a text.")
    if TARGET_TOKENIZER_FILE in tokenizers.by_file:
        notes.append(f"AutoTokenizer reads {TOKENIZER_FILE}, for sources; {TARGET_TOKENIZER_FILE} is the targets'.")
    return tokenizers, {TOKENIZER_CONFIG: _tokenizer_config(main, theirs)}, notes


def _add_special_tokens(tokenizer: Tokenizer, before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Have the tokenizer put these ids around a text, unless it does; whether it knows them."""
    bare, framed = (tokenizer.encode("a", add_special_tokens=special).ids for special in (False, True))
    if framed == [*before, *bare, *after]:
        return True
    names = {number: tokenizer.id_to_token(number) for number in (*before, *after)}
    if None in names.values():
        return False
    template = [*(names[number] for number in before), "$A", *(names[number] for number in after)]
    pair = [*template, "$B", *(names[number] for number in after)]
    known = [(name, number) for number, name in names.items()]
    tokenizer.post_processor = processors.TemplateProcessing(template, pair, known)
    return True


def _tokenizer_config(tokenizer: Tokenizer, theirs: HFSpec) -> dict[str, Any]:
    """The class that takes a `tokenizer.json` as it is, and what the special tokens are called."""
    others = [
        number
        for number, token in tokenizer.get_added_tokens_decoder().items()
        if token.special and number not in theirs.special.values()
    ]
    named = {name: tokenizer.id_to_token(number) for name, number in theirs.special.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        # "[EOS]" in a text is text; but a language code, say, is meant as one, and so is a mask
        "split_special_tokens": not others and "mask_token" not in named,
        **theirs.tokenizer,
        **{name: token for name, token in named.items() if token is not None},
    }
