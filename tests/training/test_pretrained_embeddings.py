"""`training.pretrained_embeddings`: embeddings of any network initialized from word vectors."""

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
from regard.training.runner import run_training
from regard.training.start_from import check_word_vectors, initialize_embeddings
from small_runs import request, run, write_pairs

WORDS = ["the", "cat", "sat"]
NETWORKS: dict[str, ModelConfig] = {config.kind: config for config in FAMILY.values()}


@pytest.fixture
def tokenizer() -> Tokenizer:
    return train_tokenizer(
        ["The cat sat. the dog sat."] * 3, TokenizerConfig(kind="word", byte_fallback=False), vocab_size=30
    )


def write_vectors(path: Path, words: list[str], width: int, seed: int = 0) -> torch.Tensor:
    vectors = torch.randn(len(words), width, generator=torch.Generator().manual_seed(seed)) * 7
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in zip(words, vectors.tolist(), strict=True)]
    path.write_text(f"{len(words)} {width}\n" + "\n".join(lines) + "\n")
    return vectors


@pytest.mark.parametrize("kind", NETWORKS)
def test_tokens_that_are_words_get_their_vectors(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    sizes = {"vocab_size": len(tokenizer), "target_vocab_size": len(tokenizer)}
    config: ModelConfig = NETWORKS[kind].model_copy(
        update={name: sizes[name] for name in sizes if hasattr(NETWORKS[kind], name)}
    )
    network, before = build(config), build(config)
    before.load_state_dict(network.state_dict())
    matrices = [module.weight for module in network.modules() if isinstance(module, TokenEmbedding)]
    width = matrices[0].size(1)
    vectors = write_vectors(tmp_path / "vectors.txt", WORDS, width)
    message = initialize_embeddings(network, tokenizer, tmp_path / "vectors.txt")
    assert message == f"{tmp_path / 'vectors.txt'}: 4 of 10 tokens found; the others are initialized at random."
    rows = [tokenizer.token_id(f"▁{word}") for word in ("the", "cat", "sat", "The")]  # no capitals in the file
    own = vectors[[0, 1, 2, 0]]
    expected = own * width**-0.5 / own.square().mean().sqrt()
    others = [token_id for token_id in range(len(tokenizer)) if token_id not in rows]
    initial = [module.weight for module in before.modules() if isinstance(module, TokenEmbedding)]
    for matrix, before_matrix in zip(matrices, initial, strict=True):
        torch.testing.assert_close(matrix[rows], expected)
        assert matrix[rows].square().mean().sqrt().item() == pytest.approx(width**-0.5)
        assert torch.equal(matrix[others], before_matrix[others])


def test_capitals_count_if_the_file_has_some(tokenizer: Tokenizer, tmp_path: Path) -> None:
    write_vectors(tmp_path / "vectors.txt", [*WORDS, "Rome"], 8)
    network = build(BidirectionalLanguageModelConfig(vocab_size=len(tokenizer), width=16))
    assert "3 of 10 tokens found" in initialize_embeddings(network, tokenizer, tmp_path / "vectors.txt")


def test_a_file_without_matching_words_is_an_error(tokenizer: Tokenizer, tmp_path: Path) -> None:
    write_vectors(tmp_path / "vectors.txt", ["gatto"], 16)
    with pytest.raises(DataError) as error:
        initialize_embeddings(build(BidirectionalLanguageModelConfig(width=32)), tokenizer, tmp_path / "vectors.txt")
    assert str(error.value) == (
        f"{tmp_path / 'vectors.txt'}: has a vector for none of the 10 tokens, of which 6 are whole words; "
        "check its language, or set tokenizer.kind = 'word'."
    )


def test_vectors_of_another_size_are_an_error_before_training(tmp_path: Path) -> None:
    data, path = write_pairs(tmp_path / "pairs.tsv", 30), tmp_path / "vectors.txt"
    write_vectors(path, WORDS, 50)
    with pytest.raises(ConfigError) as error:
        run(tmp_path / "run", data, f"training.pretrained_embeddings={path}")
    assert str(error.value) == (
        f"{path}: vectors of 50 numbers, but the embeddings have 32; set model.width = 50, or use other vectors."
    )
    elmo = Config.model_validate(
        {"model": {"kind": "bidirectional-language-model"}, "training": {"pretrained_embeddings": str(path)}}
    )
    with pytest.raises(ConfigError, match=r"have 256; set model.width = 100, or"):
        check_word_vectors(elmo)


class NoteRecorder(ProgressDisplay):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


@pytest.mark.slow
def test_a_run_starts_with_the_vectors_and_resumes_without_the_file(tmp_path: Path) -> None:
    data, path = write_pairs(tmp_path / "pairs.tsv", 60), tmp_path / "vectors.txt"
    vectors = write_vectors(path, ["one", "due"], 32)
    settings = ["tokenizer.kind=word", f"training.pretrained_embeddings={path}", "training.schedule.learning_rate=1e-9"]
    recorder = NoteRecorder()
    folder = run_training(request(tmp_path / "run", data, *settings, "training.steps=1"), recorder).folder
    assert any(note.startswith(f"{path}: 2 of ") for note in recorder.notes)
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    rows = [tokenizer.token_id("▁one"), tokenizer.token_id("▁due")]
    matrix = safetensors.torch.load_file(folder / "last" / "model.safetensors")["encoder.embedding.weight"]
    torch.testing.assert_close(matrix[rows], vectors * 32**-0.5 / vectors.square().mean().sqrt(), atol=1e-6, rtol=0)
    assert str(path) not in (folder / "last" / "config.json").read_text()
    path.unlink()
    run(tmp_path / "run", data, *settings, "training.steps=2", resume=True)
