"""Heads that label, as BERT has them: `BertForSequenceClassification` and `BertForTokenClassification`.

Both are one linear layer, `classifier`, and so are ours: on the pooled first token, or on the vector of each token.
"""

from typing import Any

from regard.config import ClassHeadConfig, EncoderOnlyConfig, HeadConfig, NoHeadConfig, TagHeadConfig
from regard.interop.mapping import Row, module
from regard.interop.source import TheirSettings, Weights

CLASSIFIER, POOLER = "classifier.weight", "bert.pooler.dense.weight"
TEXTS, WORDS = "BertForSequenceClassification", "BertForTokenClassification"


def label_rows(model: EncoderOnlyConfig) -> list[Row]:
    """Our tensors and theirs of such a head, if there is one."""
    return module("head.dense", "classifier") if isinstance(model.head, ClassHeadConfig | TagHeadConfig) else []


def read_label_head(settings: TheirSettings, weights: Weights) -> HeadConfig:
    """The head of a folder of theirs, if it labels texts or words, one label each."""
    classes = settings.get("architectures")
    kinds = classes if isinstance(classes, list) else []
    classifier = weights.tensors.get(CLASSIFIER)
    one_label = settings.get("problem_type") in (None, "single_label_classification")
    if classifier is None or classifier.dim() != 2 or len(classifier) < 2 or not one_label:
        return NoHeadConfig()
    about: dict[str, Any] = {"labels": _labels(settings.get("id2label"), len(classifier))}
    about["dropout"] = settings.rate(
        "classifier_dropout" if settings.get("classifier_dropout") is not None else "hidden_dropout_prob", 0.1
    )
    if TEXTS in kinds and POOLER in weights.tensors:
        return ClassHeadConfig(**about)
    return TagHeadConfig(**about) if WORDS in kinds else NoHeadConfig()


def _labels(named: Any, count: int) -> tuple[str, ...]:
    """What the labels are called; by their numbers, where the folder does not tell, or tells them apart badly."""
    names = [named.get(str(n)) for n in range(count)] if isinstance(named, dict) else []
    called = [name for name in names if isinstance(name, str)]
    return tuple(called) if len(set(called)) == count else tuple(f"LABEL_{n}" for n in range(count))


def label_settings(model: EncoderOnlyConfig) -> dict[str, Any]:
    """What their `config.json` says of such a head; nothing where there is none."""
    head = model.head
    if not isinstance(head, ClassHeadConfig | TagHeadConfig):
        return {}
    return {
        "architectures": [TEXTS if isinstance(head, ClassHeadConfig) else WORDS],
        "id2label": {str(n): label for n, label in enumerate(head.labels)},
        "label2id": {label: n for n, label in enumerate(head.labels)},
        "classifier_dropout": head.dropout,
    }
