"""`training.pretrained_embeddings`: any network can begin from word vectors."""

from pathlib import Path

import pytest
import safetensors.torch
import torch

from family import FAMILY
from regard.config import BidirectionalLanguageModelConfig, Config, ModelConfig, TokenizerConfig
from regard.data.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from regard.errors import ConfigError, DataError
from regard.models import build
from regard.nn import TokenEmbedding
from regard.training.display import ProgressDisplay
from regard.training.initialization import check_word_vectors, initialize_embeddings
from regard.training.runner import run_training
from small_runs import request, run, write_pairs

WORDS = ["the", "cat", "sat"]
KINDS: dict[str, ModelConfig] = {config.kind: config for config in FAMILY.values()}


@pytest.fixture
def tokenizer() -> Tokenizer:
    return train_tokenizer(["The cat sat. the dog sat."] * 3, TokenizerConfig(kind="word"), vocab_size=30)


def vectors_of(path: Path, words: list[str], width: int, seed: int = 0) -> torch.Tensor:
    vectors = torch.randn(len(words), width, generator=torch.Generator().manual_seed(seed)) * 7
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in zip(words, vectors.tolist(), strict=True)]
    path.write_text(f"{len(words)} {width}\n" + "\n".join(lines) + "\n")
    return vectors


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_that_are_words_begin_as_their_vectors(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    sizes = {"vocab_size": len(tokenizer), "target_vocab_size": len(tokenizer)}
    config: ModelConfig = KINDS[kind].model_copy(
        update={name: sizes[name] for name in sizes if hasattr(KINDS[kind], name)}
    )
    network, before = build(config), build(config)
    before.load_state_dict(network.state_dict())
    tables = [part.weight for part in network.modules() if isinstance(part, TokenEmbedding)]
    width = tables[0].size(1)
    vectors = vectors_of(tmp_path / "vectors.txt", WORDS, width)
    said = initialize_embeddings(network, tokenizer, tmp_path / "vectors.txt")
    assert said == f"{tmp_path / 'vectors.txt'}: 4 of 10 tokens found; the others begin at random."
    rows = [tokenizer.token_id(f"▁{word}") for word in ("the", "cat", "sat", "The")]  # no capitals in the file
    found = vectors[[0, 1, 2, 0]]
    expected = found * width**-0.5 / found.square().mean().sqrt()
    others = [number for number in range(len(tokenizer)) if number not in rows]
    for table, was in zip(
        tables, [part.weight for part in before.modules() if isinstance(part, TokenEmbedding)], strict=True
    ):
        torch.testing.assert_close(table[rows], expected)
        assert table[rows].square().mean().sqrt().item() == pytest.approx(width**-0.5)
        assert torch.equal(table[others], was[others])


def test_where_the_file_has_capitals_they_count(tokenizer: Tokenizer, tmp_path: Path) -> None:
    vectors_of(tmp_path / "vectors.txt", [*WORDS, "Rome"], 8)
    network = build(BidirectionalLanguageModelConfig(vocab_size=len(tokenizer), width=16))
    assert "3 of 10 tokens found" in initialize_embeddings(network, tokenizer, tmp_path / "vectors.txt")


def test_vectors_for_nothing_get_a_sentence(tokenizer: Tokenizer, tmp_path: Path) -> None:
    vectors_of(tmp_path / "vectors.txt", ["gatto"], 16)
    with pytest.raises(DataError) as error:
        initialize_embeddings(build(BidirectionalLanguageModelConfig(width=32)), tokenizer, tmp_path / "vectors.txt")
    assert str(error.value) == (
        f"{tmp_path / 'vectors.txt'}: has a vector for none of the 10 tokens, of which 6 are whole words; "
        "check its language, or set tokenizer.kind = 'word'."
    )


def test_another_width_gets_a_sentence_before_anything_long_begins(tmp_path: Path) -> None:
    data, path = write_pairs(tmp_path / "pairs.tsv", 30), tmp_path / "vectors.txt"
    vectors_of(path, WORDS, 50)
    with pytest.raises(ConfigError) as error:
        run(tmp_path / "run", data, f"training.pretrained_embeddings={path}")
    assert str(error.value) == (
        f"{path}: has vectors of 50 numbers, but the embeddings of the network have 32; "
        "set model.width = 50, or give other vectors."
    )
    elmo = Config.model_validate(
        {"model": {"kind": "bidirectional-language-model"}, "training": {"pretrained_embeddings": str(path)}}
    )
    with pytest.raises(ConfigError, match=r"have 256; set model.width = 100, or"):
        check_word_vectors(elmo)


class Listener(ProgressDisplay):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


def test_a_run_begins_with_these_rows_and_goes_on_without_the_file(tmp_path: Path) -> None:
    data, path = write_pairs(tmp_path / "pairs.tsv", 60), tmp_path / "vectors.txt"
    vectors = vectors_of(path, ["one", "due"], 32)
    settings = ["tokenizer.kind=word", f"training.pretrained_embeddings={path}", "training.schedule.learning_rate=1e-9"]
    listener = Listener()
    folder = run_training(request(tmp_path / "run", data, *settings, "training.steps=1"), listener).folder
    assert any(note.startswith(f"{path}: 2 of ") for note in listener.notes)
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    rows = [tokenizer.token_id("▁one"), tokenizer.token_id("▁due")]
    table = safetensors.torch.load_file(folder / "last" / "model.safetensors")["encoder.embedding.weight"]
    torch.testing.assert_close(table[rows], vectors * 32**-0.5 / vectors.square().mean().sqrt(), atol=1e-6, rtol=0)
    assert str(path) not in (folder / "last" / "config.json").read_text()
    path.unlink()
    run(tmp_path / "run", data, *settings, "training.steps=2", resume=True)
