"""RoBERTa, XLM-RoBERTa and DistilBERT compute the same after the import, with and without padding."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import ByteLevelBPETokenizer, Tokenizer
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    CamembertConfig,
    DistilBertConfig,
    DistilBertForQuestionAnswering,
    PreTrainedConfig,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaPreLayerNormConfig,
    RobertaTokenizer,
    XLMRobertaConfig,
    XLMRobertaTokenizer,
    logging,
)

from regard.config import EncoderOnlyConfig
from regard.data.tokenizer import load_tokenizer
from regard.errors import ModelError
from regard.interop import ImportReport, import_huggingface
from regard.models import EncoderOnlyTransformer, load_network

logging.set_verbosity_error()
logging.disable_progress_bar()

VOCABULARY, TOLERANCE = 23, 1e-4
BERT_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 20,
}
CONFIGS: dict[str, PreTrainedConfig] = {
    "roberta": RobertaConfig(**BERT_SIZES, type_vocab_size=1, layer_norm_eps=1e-5),
    "roberta, two segments, other padding": RobertaConfig(**BERT_SIZES, pad_token_id=4, hidden_act="relu"),
    "xlm-roberta": XLMRobertaConfig(**BERT_SIZES, type_vocab_size=1),
    "camembert": CamembertConfig(**BERT_SIZES, type_vocab_size=1),
    "roberta-prelayernorm": RobertaPreLayerNormConfig(**BERT_SIZES, type_vocab_size=1),
    "distilbert": DistilBertConfig(
        vocab_size=VOCABULARY, dim=12, n_layers=2, n_heads=2, hidden_dim=20, max_position_embeddings=20
    ),
    "distilbert, sinusoids": DistilBertConfig(
        vocab_size=VOCABULARY,
        dim=12,
        n_layers=1,
        n_heads=3,
        hidden_dim=20,
        max_position_embeddings=20,
        sinusoidal_pos_embds=True,
        activation="relu",
    ),
}


def original(kind: Any, config: PreTrainedConfig, folder: Path, **settings: Any) -> Any:
    """A model with random parameters in a folder; unused rows of its tables too."""
    torch.manual_seed(0)
    model = kind.from_config(config.__class__(**{**config.to_dict(), **settings})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(("norm" in name.lower()) + 0.3 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def batches(pad: int) -> list[tuple[Tensor, Tensor]]:
    """Ids (B, S) without the padding token, and their mask: one batch without padding, one padded to the right."""
    ids = torch.randint(5, VOCABULARY, (3, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(9) < torch.tensor([[9], [4], [1]])
    return [(ids, torch.ones_like(mask)), (ids.where(mask, pad), mask)]


def load(folder: Path, out: Path) -> tuple[EncoderOnlyTransformer, EncoderOnlyConfig, ImportReport]:
    report = import_huggingface(folder, out)
    loaded = load_network(out)
    assert isinstance(loaded.network, EncoderOnlyTransformer)
    assert isinstance(loaded.config.model, EncoderOnlyConfig)
    return loaded.network, loaded.config.model, report


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_token_and_text_vectors_equal_hugging_face(name: str, tmp_path: Path) -> None:
    theirs = original(AutoModel, CONFIGS[name], tmp_path / "theirs")
    ours, model, report = load(tmp_path / "theirs", tmp_path / "ours")
    assert report.skipped == ()
    for ids, mask in batches(theirs.config.pad_token_id):
        outputs = theirs(input_ids=ids, attention_mask=mask.long())
        memory = ours.encode(ids, mask)
        assert float((memory.states - outputs.last_hidden_state)[mask].abs().max()) < TOLERANCE
        if "distilbert" not in name:
            assert model.pooling == "first-dense"
            assert torch.allclose(ours.pool(memory), outputs.pooler_output, atol=TOLERANCE)


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_masked_token_logits_equal_hugging_face(name: str, tmp_path: Path) -> None:
    theirs = original(AutoModelForMaskedLM, CONFIGS[name], tmp_path / "theirs")
    ours, model, report = load(tmp_path / "theirs", tmp_path / "ours")
    assert (model.head.kind, report.skipped) == ("tokens", ())
    for ids, mask in batches(theirs.config.pad_token_id):
        logits = theirs(input_ids=ids, attention_mask=mask.long()).logits
        assert float((ours.logits(ours.encode(ids, mask).states) - logits)[mask].abs().max()) < TOLERANCE


@pytest.mark.parametrize("words", [False, True], ids=["classes", "tags"])
@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_label_logits_equal_hugging_face(name: str, words: bool, tmp_path: Path) -> None:
    kind = AutoModelForTokenClassification if words else AutoModelForSequenceClassification
    labels = {0: "bad", 1: "good", 2: "so-so"}
    theirs = original(kind, CONFIGS[name], tmp_path / "theirs", id2label=labels)
    ours, model, report = load(tmp_path / "theirs", tmp_path / "ours")
    assert (model.head.kind, report.skipped) == ("tags" if words else "classes", ())
    assert getattr(model.head, "labels", ()) == ("bad", "good", "so-so")
    for ids, mask in batches(theirs.config.pad_token_id):
        logits = theirs(input_ids=ids, attention_mask=mask.long()).logits
        memory = ours.encode(ids, mask)
        difference = (ours.logits(memory.states) - logits)[mask] if words else ours.logits(ours.pool(memory)) - logits
        assert float(difference.abs().max()) < TOLERANCE


def test_positions_and_segments_are_those_after_the_unused_rows(tmp_path: Path) -> None:
    original(AutoModel, CONFIGS["roberta"], tmp_path / "one")
    _, model, _ = load(tmp_path / "one", tmp_path / "ours-one")
    assert (model.max_length, model.segments) == (18, 0)  # of 20 positions; the only segment is part of them
    original(AutoModel, CONFIGS["roberta, two segments, other padding"], tmp_path / "two")
    _, model, _ = load(tmp_path / "two", tmp_path / "ours-two")
    assert (model.max_length, model.segments) == (15, 2)


def test_the_second_text_of_a_pair_has_its_segment(tmp_path: Path) -> None:
    theirs = original(AutoModel, CONFIGS["roberta, two segments, other padding"], tmp_path / "theirs")
    ours, _, _ = load(tmp_path / "theirs", tmp_path / "ours")
    ids, mask = batches(4)[0]
    segments = (torch.arange(9) > 3).long().expand_as(ids)
    with torch.no_grad():
        expected = theirs(input_ids=ids, token_type_ids=segments).last_hidden_state
        states = ours.encode(ids, mask, {"segment_ids": segments}).states
    assert torch.allclose(states, expected, atol=TOLERANCE)


def test_other_heads_are_skipped(tmp_path: Path) -> None:
    torch.manual_seed(0)
    DistilBertForQuestionAnswering(CONFIGS["distilbert"]).save_pretrained(tmp_path / "answers")
    _, model, report = load(tmp_path / "answers", tmp_path / "ours-answers")
    assert model.head.kind == "none"
    assert {skipped.reason for skipped in report.skipped} == {"regard's encoder has no question-answering head"}
    several = RobertaConfig(**BERT_SIZES, num_labels=3, problem_type="multi_label_classification")
    RobertaForSequenceClassification(several).save_pretrained(tmp_path / "several")
    _, model, report = load(tmp_path / "several", tmp_path / "ours-several")
    assert model.head.kind == "none"
    assert {skipped.reason for skipped in report.skipped} == {"regard's encoder has no such classification head"}
    RobertaForMaskedLM(RobertaConfig(**BERT_SIZES, tie_word_embeddings=False)).save_pretrained(tmp_path / "untied")
    _, model, report = load(tmp_path / "untied", tmp_path / "ours-untied")
    assert model.head.kind == "none"
    assert {skipped.tensor.split(".")[0] for skipped in report.skipped} == {"lm_head"}


def test_a_table_without_positions_is_refused(tmp_path: Path) -> None:
    original(AutoModel, CONFIGS["roberta"], tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": 2}))
    with pytest.raises(ModelError) as error:
        import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert str(error.value) == (
        f"{path}: max_position_embeddings = 2 leaves no positions, which start at pad_token_id + 1 = 2."
    )


SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
TEXTS = [
    "the cat sat on the mat",
    "  two  spaces\tand a tab\n",
    "don't you'll I'm",
    "naïve café, 日本語 👍🏽",
    "",
    "THE <s> CAT </s>",
    "a<mask>b",
    "unseen: ½ Ⅷ",
]


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny RoBERTa with `vocab.json` and `merges.txt`."""
    folder = tmp_path_factory.mktemp("bpe")
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(TEXTS[:3] * 3, vocab_size=300, special_tokens=SPECIAL, show_progress=False)
    original(AutoModelForMaskedLM, CONFIGS["roberta"], folder, vocab_size=tokenizer.get_vocab_size())
    tokenizer.save_model(str(folder))
    return folder


@pytest.mark.parametrize("prefix_space", [False, True])
@pytest.mark.parametrize("as_json", [False, True], ids=["vocab.json", "tokenizer.json"])
def test_roberta_ids_equal_hugging_face(prefix_space: bool, as_json: bool, bpe: Path, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    for file in bpe.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": prefix_space}))
    theirs = RobertaTokenizer.from_pretrained(folder, add_prefix_space=prefix_space)
    if as_json:
        theirs.save_pretrained(folder)
        (folder / "vocab.json").unlink()
    load(folder, tmp_path / "ours")
    path = tmp_path / "ours" / "tokenizer.json"
    ours, wrapped = Tokenizer.from_file(str(path)), load_tokenizer(path)
    for text in TEXTS:
        ids = theirs(text).input_ids
        assert ours.encode(text).ids == ids
        assert ours.decode(ids, skip_special_tokens=False) == theirs.decode(ids)
        if not any(name in text for name in SPECIAL):  # regard's texts have no special tokens
            assert wrapped.encode(text) == ids[1:-1]
    tokens = load_network(tmp_path / "ours").config.tokens
    assert (tokens.start, tokens.pad, tokens.end, tokens.unknown, tokens.mask) == (0, 1, 2, 3, 4)


def test_xlm_roberta_ids_equal_hugging_face(tmp_path: Path) -> None:
    pieces = ["▁the", "▁", "▁c", "at", "s", "on", "▁m", "d", "é", "a", "t", "c", "o", "n", "h", "e", "日", "本"]
    vocabulary = [*((name, 0.0) for name in SPECIAL[:4]), *((piece, -1.0 - n) for n, piece in enumerate(pieces))]
    vocabulary.append(("<mask>", 0.0))
    theirs = XLMRobertaTokenizer(vocab=vocabulary)
    config = CONFIGS["xlm-roberta"]
    original(AutoModelForMaskedLM, config, tmp_path / "theirs", vocab_size=len(vocabulary))
    theirs.save_pretrained(tmp_path / "theirs")
    load(tmp_path / "theirs", tmp_path / "ours")
    path = tmp_path / "ours" / "tokenizer.json"
    ours, wrapped = Tokenizer.from_file(str(path)), load_tokenizer(path)
    for text in TEXTS:
        ids = theirs(text).input_ids
        assert ours.encode(text).ids == ids
        if not any(name in text for name in SPECIAL):
            assert wrapped.encode(text) == ids[1:-1]
    tokens = load_network(tmp_path / "ours").config.tokens
    assert (tokens.start, tokens.pad, tokens.end, tokens.unknown, tokens.mask) == (0, 1, 2, 3, len(vocabulary) - 1)


def test_distilbert_ids_equal_hugging_face(tmp_path: Path) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "##s", "a", "tab", "two", "##b"]
    original(AutoModelForMaskedLM, CONFIGS["distilbert"], tmp_path / "theirs")
    (tmp_path / "theirs" / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    (tmp_path / "theirs" / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "DistilBertTokenizer", "do_lower_case": True})
    )
    load(tmp_path / "theirs", tmp_path / "ours")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "theirs")
    ours = Tokenizer.from_file(str(tmp_path / "ours" / "tokenizer.json"))
    for text in TEXTS:
        assert ours.encode(text).ids == theirs(text).input_ids
    tokens = load_network(tmp_path / "ours").config.tokens
    assert (tokens.pad, tokens.unknown, tokens.start, tokens.end, tokens.mask) == (0, 1, 2, 3, 4)
