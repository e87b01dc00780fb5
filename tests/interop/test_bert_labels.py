"""Classification and tagging heads of BERT survive import and export, with the same logits."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    logging,
)

from random_models import SMALL, saved, sources
from regard.config import ClassHeadConfig, EncoderOnlyConfig, TagHeadConfig
from regard.errors import ModelError
from regard.interop import import_huggingface
from regard.interop.huggingface import export_huggingface
from regard.models import load_network
from regard.models.network import EncoderNetwork

logging.set_verbosity_error()
logging.disable_progress_bar()

LABELS = ("bad", "good", "so-so")


def batch(pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    texts = sources()
    width = max(map(len, texts))
    ids = torch.tensor([[*text, *[pad] * (width - len(text))] for text in texts])
    return ids, torch.arange(width) < torch.tensor([[len(text)] for text in texts])


def label_logits(network: Any, ids: torch.Tensor, mask: torch.Tensor, *, words: bool) -> torch.Tensor:
    assert isinstance(network, EncoderNetwork)
    memory = network.encode(ids, mask)
    return network.logits(memory.states)[mask] if words else network.logits(network.pool(memory))


@pytest.mark.parametrize("words", [False, True], ids=["classes", "tags"])
@torch.no_grad()
def test_label_heads_round_trip_as_bert(words: bool, tmp_path: Path) -> None:
    head = TagHeadConfig(labels=LABELS) if words else ClassHeadConfig(labels=LABELS)
    model = EncoderOnlyConfig(**SMALL, embedding_norm=True, pooling="first-dense", head=head)
    network, config = saved(tmp_path / "ours", model)
    kind = export_huggingface(tmp_path / "ours", tmp_path / "exported").kind
    assert kind == ("BertForTokenClassification" if words else "BertForSequenceClassification")
    auto = AutoModelForTokenClassification if words else AutoModelForSequenceClassification
    theirs = auto.from_pretrained(tmp_path / "exported").eval()
    assert theirs.config.id2label == dict(enumerate(LABELS))
    ids, mask = batch(config.tokens.pad)
    logits = theirs(input_ids=ids, attention_mask=mask.long()).logits
    expected = label_logits(network, ids, mask, words=words)
    assert torch.allclose(logits[mask] if words else logits, expected, atol=1e-4)

    report = import_huggingface(tmp_path / "exported", tmp_path / "again")
    again = load_network(tmp_path / "again")
    assert isinstance(again.config.model, EncoderOnlyConfig)
    assert again.config.model.head == head
    assert report.skipped == ()
    assert torch.allclose(label_logits(again.network, ids, mask, words=words), expected, atol=1e-4)


def bert(**settings: Any) -> BertConfig:
    return BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, **settings
    )


def test_labels_without_unique_names_are_numbered(tmp_path: Path) -> None:
    theirs = BertForTokenClassification(bert(num_labels=3))
    theirs.config.id2label = {0: "same", 1: "same", 2: "other"}
    theirs.save_pretrained(tmp_path / "original")
    import_huggingface(tmp_path / "original", tmp_path / "ours")
    model = load_network(tmp_path / "ours").config.model
    assert isinstance(model, EncoderOnlyConfig)
    assert model.head == TagHeadConfig(labels=("LABEL_0", "LABEL_1", "LABEL_2"))


def test_a_multi_label_bert_is_imported_without_its_head(tmp_path: Path) -> None:
    BertForSequenceClassification(bert(num_labels=3, problem_type="multi_label_classification")).save_pretrained(
        tmp_path / "original"
    )
    report = import_huggingface(tmp_path / "original", tmp_path / "ours")
    assert [skipped.tensor for skipped in report.skipped] == ["classifier.bias", "classifier.weight"]
    assert {skipped.reason for skipped in report.skipped} == {"regard's encoder has no such classification head"}


@pytest.mark.parametrize("norm_order", ["post", "pre"])
@pytest.mark.parametrize("pooling", ["mean", "first"])
@torch.no_grad()
def test_a_text_classifier_without_a_dense_layer_labels_the_tokens(
    pooling: Any, norm_order: Any, tmp_path: Path
) -> None:
    head = ClassHeadConfig(labels=LABELS)
    settings = {"pooling": pooling, "norm_order": norm_order, "embedding_norm": norm_order == "post"}
    network, config = saved(tmp_path / "ours", EncoderOnlyConfig(**SMALL, **settings, head=head))
    report = export_huggingface(tmp_path / "ours", tmp_path / "exported")
    assert report.kind.endswith("BertForTokenClassification")
    part = "the mean of those of its tokens" if pooling == "mean" else "those of its first token"
    assert report.notes[0].endswith(f"has no text classifier without a dense layer: the logits of a text are {part}.")
    assert report.example[-1].startswith(f"print(model(**ids).logits{'.mean(1)' if pooling == 'mean' else '[:, 0]'}")
    theirs = AutoModelForTokenClassification.from_pretrained(tmp_path / "exported").eval()
    ids, mask = batch(config.tokens.pad)
    logits = theirs(input_ids=ids, attention_mask=mask.long()).logits
    weight = mask[..., None] / mask.sum(1)[:, None, None]
    of_texts = (logits * weight).sum(1) if pooling == "mean" else logits[:, 0]
    expected = label_logits(network, ids, mask, words=False)
    assert torch.allclose(of_texts, expected, atol=1e-4)

    assert import_huggingface(tmp_path / "exported", tmp_path / "again").skipped == ()
    again = load_network(tmp_path / "again")
    assert isinstance(again.config.model, EncoderOnlyConfig)
    assert (again.config.model.head, again.config.model.pooling) == (head, pooling)
    assert torch.allclose(label_logits(again.network, ids, mask, words=False), expected, atol=1e-4)


def test_a_classifier_with_relu_pooling_cannot_be_exported(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"embedding_norm": True, "pooling": "first-relu", "head": ClassHeadConfig(labels=LABELS)}
    saved(tmp_path / "ours", EncoderOnlyConfig(**SMALL, **settings))
    with pytest.raises(ModelError) as error:
        export_huggingface(tmp_path / "ours", tmp_path / "original")
    assert "BERT's dense layer for the first token has tanh, and this network's ReLU" in str(error.value)
