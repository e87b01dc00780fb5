"""Import of local Hugging Face folders (GPT-2, BERT, Marian and others) and export to them, without transformers.

    report = import_huggingface("opus-mt-en-it", "models/en-it")

    export_huggingface("runs/en-it/best", "en-it-hf")
    transformers.AutoModelForSeq2SeqLM.from_pretrained("en-it-hf")

On import, the settings of the folder become a config, our network defines which tensors it needs, and the table of the
family maps them to those of the file. Every tensor of the file is used, known not to be learned, or reported as
skipped. On export, the same tables are used in the other direction. What our networks cannot represent, or no Hugging
Face class can hold, is refused before anything is written.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer, processors

from regard.config import (
    Config,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    EncoderOnlyConfig,
    RotaryPositionsConfig,
    SpecialTokensConfig,
    TransformerConfig,
)
from regard.config.errors import explain_invalid_network
from regard.errors import ConfigError, ModelError
from regard.interop.bert import export_bert, import_bert, unsupported_by_bert
from regard.interop.distilbert import import_distilbert
from regard.interop.encoder_heads import is_token_classifier
from regard.interop.exporters import (
    EXAMPLE_TEXT,
    ExportReport,
    load_tokenizer_line,
    new_export_folder,
    quoted,
    unsupported_reason,
)
from regard.interop.gemma import import_gemma
from regard.interop.gpt2 import export_gpt2, import_gpt2, unsupported_by_gpt2
from regard.interop.gpt_neox import import_neox
from regard.interop.hf_folder import (
    FLOAT_TYPES,
    GENERATION_CONFIG_FILE,
    HFConfig,
    generation_ends,
    read_generation,
    sampling_note,
)
from regard.interop.hf_spec import HFSpec, ImportPlan, to_huggingface, to_regard
from regard.interop.hf_tokenizers import (
    TOKENIZER_CONFIG_FILE,
    ImportedTokenizers,
    chat_template_files,
    copy_tokenizers,
)
from regard.interop.llama import import_llama
from regard.interop.llama_export import export_llama, unsupported_by_llama
from regard.interop.m2m100 import import_m2m100
from regard.interop.marian import export_marian, import_marian, unsupported_by_marian
from regard.interop.modernbert import import_modernbert
from regard.interop.opt import import_opt
from regard.interop.roberta import import_roberta
from regard.interop.t5 import import_t5
from regard.interop.weight_transforms import Arrays, add_norm_parameters, repeat_kv_heads, widen_embeddings
from regard.models import Network, save
from regard.models.assembly import build_meta
from regard.models.folder import assign_tensors, load_merged, shape_text, write_model_weights
from regard.models.folder_files import (
    CONFIG_FILE,
    TARGET_TOKENIZER_FILE,
    TOKENIZER_FILE,
    read_config,
    read_json,
)

IMPORTERS: dict[str, Callable[[Path, HFConfig], ImportPlan]] = {
    "bert": import_bert,
    "camembert": import_roberta,
    "distilbert": import_distilbert,
    "gemma": import_gemma,
    "gemma2": import_gemma,
    "gpt2": import_gpt2,
    "gpt_neox": import_neox,
    "llama": import_llama,
    "m2m_100": import_m2m100,
    "marian": import_marian,
    "mbart": import_m2m100,
    "megatron-bert": import_bert,
    "mistral": import_llama,
    "mixtral": import_llama,
    "modernbert": import_modernbert,
    "opt": import_opt,
    "qwen2": import_llama,
    "qwen3": import_llama,
    "qwen3_moe": import_llama,
    "roberta": import_roberta,
    "roberta-prelayernorm": import_roberta,
    "t5": import_t5,
    "xlm-roberta": import_roberta,
}
LABEL_HEAD_CLASSES = {"classes": "AutoModelForSequenceClassification", "tags": "AutoModelForTokenClassification"}


class SkippedTensor(NamedTuple):
    """A tensor of the file that our network does not have, and why."""

    tensor: str
    reason: str


@dataclass(frozen=True)
class ImportReport:
    """The result of an import."""

    folder: Path
    kind: str
    """The `model_type` of the folder, such as gpt2 or bert."""
    parameters: int
    skipped: tuple[SkippedTensor, ...]
    notes: tuple[str, ...]
    """Differences from the original, and what was missing."""


def import_huggingface(source: str | Path, out: str | Path, *, name: str | None = None) -> ImportReport:
    """Convert a Hugging Face folder to a model folder that `regard.load` reads.

    Args:
        source: A local folder with `config.json` and `model.safetensors`.
        out: The model folder to write, which must not exist.
        name: Name of the model in the model card; by default that of the folder.
    """
    source, out = Path(source), Path(out)
    kind, config = _read_config(source)
    with explain_invalid_network(config.path):
        plan = _with_generation(IMPORTERS[kind](source, config), read_generation(source))
    network = build_meta(plan.model)  # shapes only: all values come from the file
    _check_tensors(plan, network)
    tensors = to_regard(plan.mappings, plan.weights.tensors)
    chat_files = chat_template_files(source) if plan.model.generates else {}
    assign_tensors(network, {name: tensor.float() for name, tensor in tensors.items()})
    save(
        out,
        network,
        Config(model=plan.model, tokens=_known_tokens(plan), languages=plan.languages),
        origin=f"Imported from the Hugging Face folder {name or source.resolve().name} ({kind}).",
        extra_files=plan.tokenizers.files | chat_files | plan.files,
    )
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return ImportReport(out, kind, parameters, _skipped_tensors(plan), tuple(_notes(plan)))


def _with_generation(plan: ImportPlan, generation: HFConfig) -> ImportPlan:
    """Return the plan of a language model with all end tokens, and with a note on sampling."""
    if not plan.model.generates:
        return plan
    tokens, ends = plan.tokens, generation_ends(generation, plan.model.vocab_size)
    others = tuple(end for end in ends if end not in tokens.ends)
    return replace(
        plan,
        tokens=tokens.model_copy(update={"other_ends": (*tokens.other_ends, *others)}),
        notes=[*plan.notes, *sampling_note(generation)],
    )


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
    """Return the special tokens; those outside of the vocabulary are replaced by the end token, with a note.

    A mask token or another end token outside of the vocabulary is omitted.
    """
    size = max(plan.model.vocab_size, getattr(plan.model, "target_vocab_size", None) or 0)
    end = plan.tokens.end if plan.tokens.end < size else size - 1
    outside = {name: max(ids) for name, ids in plan.tokens.named_ids.items() if max(ids) >= size}
    mask, other_end = outside.pop("mask", None), outside.pop("other_ends", None)
    limit = f"outside of the network's vocabulary of {size}"
    if mask is not None:
        plan.notes.append(f"The mask token has id {mask}, {limit}; it is omitted.")
    for name, token_id in outside.items():
        plan.notes.append(f"The {name} token has id {token_id}, {limit}; {end} is used.")
    removed: dict[str, object] = {"mask": None} if mask is not None else {}
    if other_end is not None:
        plan.notes.append(f"An end token has id {other_end}, {limit}; it is omitted.")
        removed["other_ends"] = tuple(token_id for token_id in plan.tokens.other_ends if token_id < size)
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


def export_huggingface(folder: str | Path, out: str | Path) -> ExportReport:
    """Convert a model to a Hugging Face folder: Marian, GPT-2, Llama or BERT, depending on its network.

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
    tensors = load_merged(folder).network.state_dict()
    arrays: Arrays = {name: tensor.float().numpy() for name, tensor in tensors.items()}
    if isinstance(config.model, TransformerConfig):
        # all classes have gains in norms, and embeddings of the model width; only the Llama family has grouped heads
        arrays = widen_embeddings(add_norm_parameters(arrays, config.model), config.model)
        if not isinstance(config.model.positions, RotaryPositionsConfig):
            arrays = repeat_kv_heads(arrays, config.model)
    spec = _build_spec(config, arrays)
    tokenizers, tokenizer_files, notes = export_tokenizers(folder, spec)
    documents = {CONFIG_FILE: {**spec.config, "dtype": "float32"}, **spec.files, **tokenizer_files}
    if spec.generation_config is not None:
        documents[GENERATION_CONFIG_FILE] = spec.generation_config
    with new_export_folder(out) as temporary:
        for name, document in documents.items():
            (temporary / name).parent.mkdir(exist_ok=True)
            (temporary / name).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8")
        for name, content in (tokenizers.files | chat_template_files(folder)).items():
            (temporary / name).write_bytes(content)
        separate = {name: tensor.clone().contiguous() for name, tensor in spec.tensors.items()}  # no shared memory
        write_model_weights(temporary, separate)
    kind, example = spec.config["architectures"][0], huggingface_example(out, config)
    return ExportReport(out, "transformers", kind, (*spec.notes, *notes), tuple(example))


def huggingface_exporter(folder: Path, out: Path, quantization: str | None = None) -> ExportReport:
    """Convert a model in float32; the registered exporter."""
    if quantization is not None:
        raise ConfigError(f"quantization = {quantization}: is for the format ctranslate2; remove it.")
    return export_huggingface(folder, out)


def unsupported_by_huggingface(config: Config) -> str | None:
    """Return why no Hugging Face class can hold a model; None if one can."""
    match config.model:
        case EncoderDecoderConfig() as model:
            return unsupported_by_marian(config, model)
        case DecoderOnlyConfig(positions=RotaryPositionsConfig()) as model:
            return unsupported_by_llama(model)
        case DecoderOnlyConfig() as model:
            return unsupported_by_gpt2(model)
        case EncoderOnlyConfig() as model:
            return unsupported_by_bert(model)
        case model:
            return f"transformers has no class for models of type {model.family}"


def _build_spec(config: Config, arrays: Arrays) -> HFSpec:
    match config.model:
        case EncoderDecoderConfig() as model:
            return export_marian(config, model, arrays)
        case DecoderOnlyConfig(positions=RotaryPositionsConfig()) as model:
            return export_llama(config, model, arrays)
        case DecoderOnlyConfig() as model:
            return export_gpt2(config, model, arrays)
        case EncoderOnlyConfig() as model:
            return export_bert(config, model, arrays)
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
    logits = "logits"
    if isinstance(config.model, EncoderOnlyConfig):
        kind = LABEL_HEAD_CLASSES.get(config.model.head.kind, kind)
        if kind == LABEL_HEAD_CLASSES["classes"] and is_token_classifier(config.model):
            kind = LABEL_HEAD_CLASSES["tags"]
            logits = "logits.mean(1)" if config.model.pooling == "mean" else "logits[:, 0]"
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
        return [*lines, f"print(model(**ids).{logits}.softmax(-1))"]
    if kind == "AutoModel":
        return [*lines, "print(model(**ids).last_hidden_state)"]
    target = "tokenizer"
    if (folder / TARGET_TOKENIZER_FILE).exists():
        target = "target"
        lines += ["import tokenizers", load_tokenizer_line(target, folder / TARGET_TOKENIZER_FILE)]
    return [*lines, f"print({target}.decode(model.generate(**ids)[0].tolist(), skip_special_tokens=True))"]
