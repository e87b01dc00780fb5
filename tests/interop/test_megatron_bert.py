"""Encoders with pre-norm, which the commands train by default, are MegatronBert in transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    MegatronBertConfig,
    MegatronBertForPreTraining,
    MegatronBertModel,
    logging,
)

from random_models import SMALL, VOCABULARY, saved, sources
from regard.config import (
    ClassHeadConfig,
    EncoderOnlyConfig,
    HeadConfig,
    LearnedPositionsConfig,
    SinusoidalPositionsConfig,
    TagHeadConfig,
    TokenHeadConfig,
)
from regard.interop import import_huggingface
from regard.interop.huggingface import export_huggingface
from regard.models import EncoderOnlyTransformer, load_network

logging.set_verbosity_error()
logging.disable_progress_bar()

TOLERANCE = 1e-4
LABELS = ("bad", "good", "so-so")
HEADS: dict[str, tuple[HeadConfig, Any]] = {
    "MegatronBertForMaskedLM": (TokenHeadConfig(activation="gelu"), AutoModelForMaskedLM),
    "MegatronBertForSequenceClassification": (ClassHeadConfig(labels=LABELS), AutoModelForSequenceClassification),
    "MegatronBertForTokenClassification": (TagHeadConfig(labels=LABELS), AutoModelForTokenClassification),
}
NETWORKS: dict[str, dict[str, Any]] = {
    "learned positions": {"positions": LearnedPositionsConfig(max_length=24), "scale_embeddings": False},
    "sinusoids, scaled embeddings": {"positions": SinusoidalPositionsConfig()},
    "segments, biases, narrow keys": {"segments": 2, "attention_bias": True, "key_width": 2},
}


def padded(pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A right-padded batch (B, S) and its mask."""
    texts = sources()
    width = max(map(len, texts))
    ids = torch.tensor([[*text, *[pad] * (width - len(text))] for text in texts])
    return ids, torch.arange(width) < torch.tensor([[len(text)] for text in texts])


def head_logits(network: Any, ids: torch.Tensor, mask: torch.Tensor) -> Any:
    memory = network.encode(ids, mask)
    texts = isinstance(network, EncoderOnlyTransformer) and type(network.head).__name__ == "TextClassificationHead"
    return network.logits(network.pool(memory)) if texts else network.logits(memory.states)[mask]


@pytest.mark.parametrize("settings", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("kind", HEADS)
@torch.no_grad()
def test_heads_round_trip(kind: str, settings: dict[str, Any], tmp_path: Path) -> None:
    head, auto = HEADS[kind]
    fixed = {"norm_order": "pre", "activation": "gelu", "pooling": "first-dense", "head": head}
    network, config = saved(tmp_path / "ours", EncoderOnlyConfig(**{**SMALL, **fixed, **settings}))
    assert export_huggingface(tmp_path / "ours", tmp_path / "exported").kind == kind
    theirs = auto.from_pretrained(tmp_path / "exported").eval()
    ids, mask = padded(config.tokens.pad)
    logits = theirs(input_ids=ids, attention_mask=mask.long()).logits
    expected = head_logits(network, ids, mask)
    assert float(((logits if logits.dim() == 2 else logits[mask]) - expected).abs().max()) < TOLERANCE

    report = import_huggingface(tmp_path / "exported", tmp_path / "again")
    again = load_network(tmp_path / "again")
    assert isinstance(again.config.model, EncoderOnlyConfig)
    assert (report.skipped, again.config.model.head, again.config.model.norm_order) == ((), head, "pre")
    assert float((head_logits(again.network, ids, mask) - expected).abs().max()) < TOLERANCE


@pytest.mark.parametrize("pooling", ["mean", "first", "first-dense"])
@torch.no_grad()
def test_vectors_round_trip(pooling: Any, tmp_path: Path) -> None:
    model = EncoderOnlyConfig(**SMALL, norm_order="pre", segments=2, pooling=pooling)
    network, config = saved(tmp_path / "ours", model)
    assert isinstance(network, EncoderOnlyTransformer)
    assert export_huggingface(tmp_path / "ours", tmp_path / "exported").kind == "MegatronBertModel"
    theirs = AutoModel.from_pretrained(tmp_path / "exported").eval()
    assert isinstance(theirs, MegatronBertModel)
    ids, mask = padded(config.tokens.pad)
    segments = (torch.arange(ids.shape[1]) > 2).long().expand_as(ids)
    outputs = theirs(input_ids=ids, attention_mask=mask.long(), token_type_ids=segments)
    memory = network.encode(ids, mask, {"segment_ids": segments})
    assert float((outputs.last_hidden_state - memory.states)[mask].abs().max()) < TOLERANCE
    import_huggingface(tmp_path / "exported", tmp_path / "again")
    again = load_network(tmp_path / "again").network
    assert isinstance(again, EncoderOnlyTransformer)
    vectors = again.pool(again.encode(ids, mask, {"segment_ids": segments}))
    assert torch.allclose(vectors, network.pool(memory), atol=TOLERANCE)


@torch.no_grad()
def test_an_imported_megatron_bert_gives_the_logits_of_hugging_face(tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = MegatronBertForPreTraining(
        MegatronBertConfig(
            vocab_size=VOCABULARY,
            hidden_size=12,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=20,
            max_position_embeddings=16,
        )
    ).eval()
    for parameter in theirs.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    theirs.save_pretrained(tmp_path / "theirs")
    report = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert {skipped.tensor for skipped in report.skipped} == {
        "cls.seq_relationship.weight",
        "cls.seq_relationship.bias",
    }
    ids, mask = padded(0)
    expected = theirs(input_ids=ids, attention_mask=mask.long()).prediction_logits[mask]
    ours = head_logits(load_network(tmp_path / "ours").network, ids, mask)
    assert float((ours - expected).abs().max()) < TOLERANCE
