"""What text encoders of Hugging Face have in common: heads, and the pooling of sentence-transformers.

The files that sentence-transformers adds to a folder define how token vectors become a text vector.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from regard.config import ClassHeadConfig, EncoderOnlyConfig, HeadConfig, NoHeadConfig, TagHeadConfig
from regard.errors import ModelError
from regard.interop.hf_folder import HFConfig, HFWeights
from regard.interop.hf_spec import TensorMapping, map_module, same_tensor
from regard.models.folder_files import parse_json, read_json

POOLING_FILE, MODULES_FILE = "1_Pooling/config.json", "modules.json"
POOLING_MODES: dict[str, Literal["mean", "first"]] = {"mean": "mean", "cls": "first"}
OLD_POOLING_FLAGS = {  # the setting pooling_mode replaced them
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}

TEXT_CLASSIFIER, TOKEN_CLASSIFIER = "ForSequenceClassification", "ForTokenClassification"  # ends of class names
LABEL_HEAD_DROPOUT = "classifier_dropout"  # if it is not set: that of the layers
CLASSIFIER_POOLING = "classifier_pooling"  # the name of this setting in ModernBERT
UNSUPPORTED_HEADS = {
    "classifier.": "regard's encoder has no such classification head",
    "qa_outputs.": "regard's encoder has no question-answering head",
}
UNTIED_OUTPUT = "regard's encoder predicts masked tokens with its embedding matrix, and this one has another"


def has_label_head(model: EncoderOnlyConfig) -> bool:
    """Return whether a network predicts a label per text or per word."""
    return isinstance(model.head, ClassHeadConfig | TagHeadConfig)


def label_head_mappings(model: EncoderOnlyConfig, hf_name: str = "classifier") -> list[TensorMapping]:
    """Map the linear layer of a head for labels."""
    return map_module("head.dense", hf_name) if has_label_head(model) else []


def take_tied_lm_head(weights: HFWeights, head: Iterable[TensorMapping], copies: Mapping[str, str]) -> bool:
    """Return whether there is a complete head for masked tokens tied to the embedding; remove copies of its tensors.

    Args:
        weights: The tensors of a folder.
        head: The tensors that the head consists of.
        copies: Names of tensors that a file may contain twice, and the names of the originals.
    """
    tensors = weights.tensors
    if not all(name in tensors for entry in head for name in entry.hf_names):
        return False
    for copy, original in copies.items():
        if copy in tensors and not same_tensor(tensors[copy], tensors.get(original, tensors[copy])):
            return False
    for copy in copies:
        tensors.pop(copy, None)
    return True


def import_label_head(
    config: HFConfig, weights: HFWeights, classifier: str, *, can_pool: bool, dropout: str
) -> HeadConfig:
    """Return the head of a folder if it predicts one label per text or per word.

    Args:
        config: The settings of the folder.
        weights: Its tensors.
        classifier: The name of the matrix of the last layer (labels, width).
        can_pool: Whether there is the dense layer through which the first token goes in a text classifier.
        dropout: The name of the setting of the dropout before the last layer.
    """
    architectures = config.get("architectures")
    classes = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    matrix = weights.tensors.get(classifier)
    is_single_label = config.get("problem_type") in (None, "single_label_classification")
    if matrix is None or matrix.dim() != 2 or len(matrix) < 2 or not is_single_label:
        return NoHeadConfig()
    labels, probability = _label_names(config.get("id2label"), len(matrix)), config.probability(dropout, 0.1)
    if can_pool and any(name.endswith(TEXT_CLASSIFIER) for name in classes):
        return ClassHeadConfig(labels=labels, dropout=probability)
    if any(name.endswith(TOKEN_CLASSIFIER) for name in classes):
        kind = TagHeadConfig if text_pooling(config) is None else ClassHeadConfig
        return kind(labels=labels, dropout=probability)
    return NoHeadConfig()


def text_pooling(config: HFConfig) -> Literal["mean", "first"] | None:
    """Return which labels of tokens are those of the text: `regard export` writes it for a text classifier."""
    value = config.get(CLASSIFIER_POOLING)
    return POOLING_MODES.get(value) if isinstance(value, str) else None


def is_token_classifier(model: EncoderOnlyConfig) -> bool:
    """Return whether the class for labels of tokens holds a network, which is a tagger, or a text classifier without a
    dense layer: as its last layer is linear, the logits of the mean of the tokens are the mean of their logits.
    """
    is_linear = model.pooling in POOLING_MODES.values()
    return isinstance(model.head, TagHeadConfig) or (isinstance(model.head, ClassHeadConfig) and is_linear)


def label_head_dropout(config: HFConfig, default: str) -> str:
    """Return the name of the setting of the dropout of a classifier."""
    return LABEL_HEAD_DROPOUT if config.get(LABEL_HEAD_DROPOUT) is not None else default


def _label_names(id2label: Any, count: int) -> tuple[str, ...]:
    """Return the names of labels; LABEL_0, LABEL_1, … if the folder has none or they are not unique."""
    values = [id2label.get(str(n)) for n in range(count)] if isinstance(id2label, dict) else []
    names = [value for value in values if isinstance(value, str)]
    return tuple(names) if len(set(names)) == count else tuple(f"LABEL_{n}" for n in range(count))


def label_head_config(model: EncoderOnlyConfig, prefix: str) -> dict[str, Any]:
    """Return the settings of a head for labels in `config.json`; `prefix` is the start of class names, like "Bert"."""
    head = model.head
    if not isinstance(head, ClassHeadConfig | TagHeadConfig):
        return {}
    pooling = next((mode for mode, name in POOLING_MODES.items() if name == model.pooling), None)
    return {
        "architectures": [prefix + (TOKEN_CLASSIFIER if is_token_classifier(model) else TEXT_CLASSIFIER)],
        **({CLASSIFIER_POOLING: pooling} if pooling and isinstance(head, ClassHeadConfig) else {}),
        "id2label": {str(n): label for n, label in enumerate(head.labels)},
        "label2id": {label: n for n, label in enumerate(head.labels)},
        LABEL_HEAD_DROPOUT: head.dropout,
    }


def read_pooling(folder: Path) -> tuple[Literal["mean", "first"] | None, list[str]]:
    """Return the pooling of a folder, None if it is not of sentence-transformers; and notes on further modules."""
    path = folder / POOLING_FILE
    if not path.exists():
        return None, []
    config = read_json(path)
    mode = config.get("pooling_mode", [mode for flag, mode in OLD_POOLING_FLAGS.items() if config.get(flag) is True])
    modes = [str(name) for name in mode] if isinstance(mode, list) else [str(mode)]
    pooling = " and ".join(modes) or "mean"
    if pooling not in POOLING_MODES:
        raise ModelError(
            f"{path}: uses {pooling} pooling, and regard supports mean and cls; choose a model with one of these."
        )
    return POOLING_MODES[pooling], _notes(folder / MODULES_FILE)


def pooling_files(pooling: str, width: int) -> dict[str, object]:
    """Return the JSON files for a pooling; none for BERT's own pooling, which is part of its weights."""
    mode = next((mode for mode, name in POOLING_MODES.items() if name == pooling), None)
    if mode is None:
        return {}
    modules = {"": "Transformer", POOLING_FILE.partition("/")[0]: "Pooling"}
    return {
        POOLING_FILE: {"pooling_mode": mode, "embedding_dimension": width},
        MODULES_FILE: [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for index, (path, kind) in enumerate(modules.items())
        ],
    }


def _notes(path: Path) -> list[str]:
    """Return notes on the modules after the pooling, which regard does not have."""
    modules = parse_json(path) if path.exists() else []
    kinds = [_kind(module) for module in modules] if isinstance(modules, list) else []
    notes = []
    for kind in kinds:
        if kind == "Normalize":
            notes.append("sentence-transformers scales these vectors to length 1; regard does it with normalize=True.")
        elif kind not in ("Transformer", "Pooling"):
            notes.append(f"sentence-transformers applies a {kind} module to these vectors; regard does not.")
    return notes


def _kind(module: Any) -> str:
    return str(module.get("type", "")).rpartition(".")[2] if isinstance(module, dict) else ""
