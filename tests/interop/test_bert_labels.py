"""BERTs that classify texts and tag words come in and go out with their heads, and give the same logits."""

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
from regard.interop.hf_export import export_huggingface
from regard.models import load
from regard.models.network import EncoderNetwork

logging.set_verbosity_error()
logging.disable_progress_bar()

LABELS = ("bad", "good", "so-so")


def batch(pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    texts = sources()
    longest = max(map(len, texts))
    ids = torch.tensor([[*text, *[pad] * (longest - len(text))] for text in texts])
    return ids, torch.arange(longest) < torch.tensor([[len(text)] for text in texts])


def ours(network: Any, ids: torch.Tensor, real: torch.Tensor, *, words: bool) -> torch.Tensor:
    assert isinstance(network, EncoderNetwork)
    memory = network.encode(ids, real)
    return network.logits(memory.states)[real] if words else network.logits(network.pool(memory))


@pytest.mark.parametrize("words", [False, True], ids=["classes", "tags"])
@torch.no_grad()
def test_a_network_with_labels_is_a_bert_and_comes_back(words: bool, tmp_path: Path) -> None:
    head = TagHeadConfig(labels=LABELS) if words else ClassHeadConfig(labels=LABELS)
    model = EncoderOnlyConfig(**SMALL, embedding_norm=True, pooling="first-dense", head=head)
    network, config = saved(tmp_path / "ours", model)
    kind = export_huggingface(tmp_path / "ours", tmp_path / "theirs").kind
    assert kind == ("BertForTokenClassification" if words else "BertForSequenceClassification")
    auto = AutoModelForTokenClassification if words else AutoModelForSequenceClassification
    theirs = auto.from_pretrained(tmp_path / "theirs").eval()
    assert theirs.config.id2label == dict(enumerate(LABELS))
    ids, real = batch(config.tokens.pad)
    logits = theirs(input_ids=ids, attention_mask=real.long()).logits
    expected = ours(network, ids, real, words=words)
    assert torch.allclose(logits[real] if words else logits, expected, atol=1e-4)

    report = import_huggingface(tmp_path / "theirs", tmp_path / "again")
    again = load(tmp_path / "again")
    assert isinstance(again.config.model, EncoderOnlyConfig)
    assert again.config.model.head == head
    assert report.left_out == ()
    assert torch.allclose(ours(again.network, ids, real, words=words), expected, atol=1e-4)


def bert(**settings: Any) -> BertConfig:
    return BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, **settings
    )


def test_labels_without_names_are_called_by_their_numbers(tmp_path: Path) -> None:
    theirs = BertForTokenClassification(bert(num_labels=3))
    theirs.config.id2label = {0: "same", 1: "same", 2: "other"}
    theirs.save_pretrained(tmp_path / "theirs")
    import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    model = load(tmp_path / "ours").config.model
    assert isinstance(model, EncoderOnlyConfig)
    assert model.head == TagHeadConfig(labels=("LABEL_0", "LABEL_1", "LABEL_2"))


def test_a_bert_that_gives_several_labels_at_once_is_imported_without_its_head(tmp_path: Path) -> None:
    BertForSequenceClassification(bert(num_labels=3, problem_type="multi_label_classification")).save_pretrained(
        tmp_path / "theirs"
    )
    report = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert [left.tensor for left in report.left_out] == ["classifier.bias", "classifier.weight"]
    assert {left.reason for left in report.left_out} == {"regard's encoder has no head that classifies so"}


def test_a_classifier_that_pools_by_the_mean_is_no_bert(tmp_path: Path) -> None:
    saved(tmp_path / "ours", EncoderOnlyConfig(**SMALL, embedding_norm=True, head=ClassHeadConfig(labels=LABELS)))
    with pytest.raises(ModelError) as error:
        export_huggingface(tmp_path / "ours", tmp_path / "theirs")
    assert "BERT classifies the first token through a dense layer, and this network pools otherwise" in str(error.value)
