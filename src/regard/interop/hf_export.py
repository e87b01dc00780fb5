"""Export to Hugging Face: a folder that `transformers` loads without regard, written without transformers.

    export_huggingface("runs/en-it/best", "en-it-hf")
    transformers.AutoModelForSeq2SeqLM.from_pretrained("en-it-hf")

The tables of the import are used in the other direction. A model that no Hugging Face class can hold is refused before
anything is written.
"""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers import Tokenizer, processors

from regard.config import Config, DecoderOnlyConfig, EncoderDecoderConfig, EncoderOnlyConfig, TransformerConfig
from regard.errors import ConfigError, ModelError
from regard.interop.bert import export_bert, unsupported_by_bert
from regard.interop.ctranslate2_support import unsupported_reason
from regard.interop.exporters import EXAMPLE_TEXT, ExportReport, load_tokenizer_line, new_export_folder, quoted
from regard.interop.gpt2 import export_gpt2, unsupported_by_gpt2
from regard.interop.hf_spec import HFSpec
from regard.interop.hf_tokenizers import TOKENIZER_CONFIG_FILE, ImportedTokenizers, copy_tokenizers
from regard.interop.marian import export_marian, unsupported_by_marian
from regard.interop.weight_transforms import Tensors
from regard.models import load
from regard.models.folder import repeat_kv_heads
from regard.models.folder_files import CONFIG_FILE, TARGET_TOKENIZER_FILE, TOKENIZER_FILE, WEIGHTS_FILE, read_config

GENERATION_CONFIG_FILE = "generation_config.json"
LABEL_HEAD_CLASSES = {"classes": "AutoModelForSequenceClassification", "tags": "AutoModelForTokenClassification"}


def export_huggingface(folder: str | Path, out: str | Path) -> ExportReport:
    """Convert a model to a Hugging Face folder: Marian, GPT-2 or BERT, depending on its network.

    Args:
        folder: A model folder.
        out: The folder to write, which must not exist.
    """
    folder, out = Path(folder), Path(out)
    config = read_config(folder)
    reason = unsupported_by_huggingface(config)
    if reason is not None:
        remedy = "export it to ctranslate2" if unsupported_reason(config) is None else "use it with regard"
        raise ModelError(f"{folder}: cannot be exported to Hugging Face, because {reason}; {remedy}.")
    tensors = {name: tensor.float() for name, tensor in load(folder).network.state_dict().items()}
    if isinstance(config.model, TransformerConfig):
        tensors = repeat_kv_heads(tensors, config.model)  # Marian, GPT-2 and BERT have no grouped heads
    spec = _build_spec(config, tensors)
    tokenizers, tokenizer_files, notes = export_tokenizers(folder, spec)
    documents = {CONFIG_FILE: {**spec.config, "dtype": "float32"}, **spec.files, **tokenizer_files}
    if spec.generation_config is not None:
        documents[GENERATION_CONFIG_FILE] = spec.generation_config
    with new_export_folder(out) as temporary:
        for name, document in documents.items():
            (temporary / name).parent.mkdir(exist_ok=True)
            (temporary / name).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8")
        for name, content in tokenizers.files.items():
            (temporary / name).write_bytes(content)
        separate = {name: tensor.clone().contiguous() for name, tensor in spec.tensors.items()}  # no shared memory
        save_file(separate, temporary / WEIGHTS_FILE, {"format": "pt"})
    kind, example = spec.config["architectures"][0], huggingface_example(out, config)
    return ExportReport(out, "transformers", kind, (*spec.notes, *notes), tuple(example))


def huggingface_exporter(folder: Path, out: Path, quantization: str | None = None) -> ExportReport:
    """Convert a model in float32; the registered exporter."""
    if quantization is not None:
        raise ConfigError(f"--quantization {quantization}: is for --to ctranslate2; remove it.")
    return export_huggingface(folder, out)


def unsupported_by_huggingface(config: Config) -> str | None:
    """Return why no Hugging Face class can hold a model; None if one can."""
    match config.model:
        case EncoderDecoderConfig() as model:
            return unsupported_by_marian(config, model)
        case DecoderOnlyConfig() as model:
            return unsupported_by_gpt2(model)
        case EncoderOnlyConfig() as model:
            return unsupported_by_bert(model)
        case model:
            return f"transformers has no class for models of type {model.family}"


def _build_spec(config: Config, tensors: Tensors) -> HFSpec:
    match config.model:
        case EncoderDecoderConfig() as model:
            return export_marian(config, model, tensors)
        case DecoderOnlyConfig() as model:
            return export_gpt2(config, model, tensors)
        case EncoderOnlyConfig() as model:
            return export_bert(config, model, tensors)
        case model:
            raise TypeError(f"no Hugging Face class for {model.family}")  # checked by `unsupported_by_huggingface`


def export_tokenizers(folder: Path, spec: HFSpec) -> tuple[ImportedTokenizers, dict[str, Any], list[str]]:
    """Return the tokenizers of a model folder, the contents of `tokenizer_config.json`, and notes."""
    tokenizers = copy_tokenizers(folder, TOKENIZER_FILE, TARGET_TOKENIZER_FILE)
    tokenizer = tokenizers.by_file.get(TOKENIZER_FILE)
    if tokenizer is None:
        return tokenizers, {}, ["The model has no tokenizer, so the exported model has none: use it with token ids."]
    notes = []
    if not _add_special_tokens(tokenizer, spec.prefix_ids, spec.suffix_ids):
        notes.append("The tokenizer lacks a special token of the model, so it adds none to texts.")
    if TARGET_TOKENIZER_FILE in tokenizers.by_file:
        notes.append(f"AutoTokenizer reads {TOKENIZER_FILE}, for sources; {TARGET_TOKENIZER_FILE} is for targets.")
    return tokenizers, {TOKENIZER_CONFIG_FILE: _tokenizer_config(tokenizer, spec)}, notes


def _add_special_tokens(tokenizer: Tokenizer, prefix: tuple[int, ...], suffix: tuple[int, ...]) -> bool:
    """Make the tokenizer add these ids around a text, unless it does; return False if it does not know them."""
    without, with_special = (tokenizer.encode("a", add_special_tokens=special).ids for special in (False, True))
    if with_special == [*prefix, *without, *suffix]:
        return True
    names = {token_id: tokenizer.id_to_token(token_id) for token_id in (*prefix, *suffix)}
    if None in names.values():
        return False
    template = [*(names[token_id] for token_id in prefix), "$A", *(names[token_id] for token_id in suffix)]
    pair = [*template, "$B", *(names[token_id] for token_id in suffix)]
    special_tokens = [(name, token_id) for token_id, name in names.items()]
    tokenizer.post_processor = processors.TemplateProcessing(template, pair, special_tokens)
    return True


def _tokenizer_config(tokenizer: Tokenizer, spec: HFSpec) -> dict[str, Any]:
    """Return the settings that load a `tokenizer.json` unchanged, and the names of special tokens."""
    other_special = [
        token_id
        for token_id, token in tokenizer.get_added_tokens_decoder().items()
        if token.special and token_id not in spec.special_tokens.values()
    ]
    named = {name: tokenizer.id_to_token(token_id) for name, token_id in spec.special_tokens.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        # "[EOS]" in a text is text, but language codes and masks are special tokens there
        "split_special_tokens": not other_special and "mask_token" not in named,
        **spec.tokenizer_config,
        **{name: token for name, token in named.items() if token is not None},
    }


def huggingface_example(folder: Path, config: Config) -> list[str]:
    """Return lines of Python that run an exported model."""
    classes = {EncoderDecoderConfig: "AutoModelForSeq2SeqLM", DecoderOnlyConfig: "AutoModelForCausalLM"}
    kind = classes.get(type(config.model), "AutoModel")
    if isinstance(config.model, EncoderOnlyConfig):
        kind = LABEL_HEAD_CLASSES.get(config.model.head.kind, kind)
    load_model = f"model = {kind}.from_pretrained({quoted(folder)})"
    if not (folder / TOKENIZER_FILE).exists():
        return [f"from transformers import {kind}", load_model]
    lines = [
        f"from transformers import {kind}, AutoTokenizer",
        load_model,
        f"tokenizer = AutoTokenizer.from_pretrained({quoted(folder)})",
        f'ids = tokenizer({quoted(EXAMPLE_TEXT)}, return_tensors="pt")',
    ]
    if kind in LABEL_HEAD_CLASSES.values():
        return [*lines, "print(model(**ids).logits.softmax(-1))"]
    if kind == "AutoModel":
        return [*lines, "print(model(**ids).last_hidden_state)"]
    target = "tokenizer"
    if (folder / TARGET_TOKENIZER_FILE).exists():
        target = "target"
        lines += ["import tokenizers", load_tokenizer_line(target, folder / TARGET_TOKENIZER_FILE)]
    return [*lines, f"print({target}.decode(model.generate(**ids)[0].tolist(), skip_special_tokens=True))"]
