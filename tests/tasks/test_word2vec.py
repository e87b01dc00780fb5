"""`regard train word2vec`: similar vectors for similar words, files of the run, and error messages."""

import json
import random
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from commands import regard
from regard.config import load_sources
from regard.config.sources import validate_sources
from regard.config.training import Word2VecRunConfig
from regard.data.word_vectors import read_word_vectors
from regard.errors import ConfigError, DataError, RunError
from regard.tasks.word2vec import TrainedVectors, train_word2vec

ANIMALS, PLACES = ["cat", "dog", "cow", "hen"], ["house", "barn", "field", "wood"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = random.Random(0)
    lines = [
        draw.choice([f"a {draw.choice(ANIMALS)} eats and sleeps", f"we walk to the {draw.choice(PLACES)}"])
        for _ in range(600)
    ]
    path = tmp_path_factory.mktemp("data") / "text.txt"
    path.write_text("\n".join(lines))
    return path


def train(text: Path | str, out: Path, *settings: str) -> TrainedVectors:
    sets = [f"data.train.files={text}", "word2vec.width=16", "word2vec.subsample=0", *settings]
    return train_word2vec(validate_sources(load_sources(None, sets), Word2VecRunConfig), out)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["skip-gram", "cbow"])
def test_words_with_similar_contexts_have_similar_vectors(method: str, text: Path, tmp_path: Path) -> None:
    vectors = train(text, tmp_path / "out", f"word2vec.method={method}", "word2vec.epochs=20")
    for group in (ANIMALS, PLACES):
        for word in group:
            assert set(vectors.nearest(word, 3)) == set(group) - {word}


def test_the_folder_has_vectors_and_settings(text: Path, tmp_path: Path) -> None:
    vectors = train(text, tmp_path / "out")
    file = read_word_vectors(tmp_path / "out" / "vectors.txt", set(vectors.words))
    assert file.num_words == len(vectors.words) == len(file.vectors)
    np.testing.assert_allclose(file.vectors["cat"], vectors.vectors[vectors.words.index("cat")], rtol=1e-5)
    settings = tomllib.loads((tmp_path / "out" / "config.toml").read_text())
    assert settings["word2vec"]["width"] == 16
    assert json.loads((tmp_path / "out" / "run.json").read_text())["words"] == len(vectors.words)


def test_the_same_settings_give_the_same_vectors(text: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        train(text, tmp_path / name)
    assert (tmp_path / "one" / "vectors.txt").read_bytes() == (tmp_path / "two" / "vectors.txt").read_bytes()


def test_words_are_split_like_the_word_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Well, well: the\tend.\n" * 3)
    vectors = train(tmp_path / "text.txt", tmp_path / "out", "word2vec.min_count=1", "word2vec.lowercase=true")
    assert set(vectors.words) == {"well", ",", ":", "the", "end", "."}
    assert vectors.words_read == 3 * 7


@pytest.mark.parametrize(
    ("settings", "error_type", "message"),
    [
        (["word2vec.method=glove"], ConfigError, "word2vec.method = 'glove' should be 'skip-gram' or 'cbow'."),
        (["word2vec.widht=3"], ConfigError, "word2vec.widht is not a setting; did you mean word2vec.width?"),
        (["data.train.files=[]"], ConfigError, "there is no training data; pass --data."),
        (
            ["data.train.files=-"],
            ConfigError,
            "word2vec reads its text several times, but standard input (-) can be read only once; pass a file.",
        ),
        (
            ["data.train.source=a", "data.train.target=b"],
            ConfigError,
            "word2vec is trained on --data; --source and --target are for translation.",
        ),
        (["data.train.files=missing.txt"], DataError, "missing.txt: not found; check the path."),
        (
            ["word2vec.min_count=1000"],
            DataError,
            "{text}: has no word that occurs 1000 times; lower word2vec.min_count, or provide more text.",
        ),
    ],
)
def test_errors(settings: list[str], error_type: type[Exception], message: str, text: Path, tmp_path: Path) -> None:
    with pytest.raises(error_type) as error:
        train(text, tmp_path / "out", *settings)
    assert str(error.value).removeprefix(f"--set {settings[0]}: ") == message.format(text=text)


def test_vectors_are_not_overwritten(text: Path, tmp_path: Path) -> None:
    train(text, tmp_path / "out", "word2vec.epochs=1")
    with pytest.raises(RunError) as error:
        train(text, tmp_path / "out")
    assert str(error.value) == f"{tmp_path / 'out'}: already holds the result of a training run; choose another --out."


def test_without_gensim_the_message_says_how_to_install_it(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(ConfigError) as error:
        train(text, tmp_path / "out")
    assert str(error.value) == "word2vec needs gensim; install it with: pip install 'regard[word2vec]'."


def test_the_command_shows_nearest_neighbors(text: Path, tmp_path: Path) -> None:
    command = ["train", "word2vec", "--data", str(text)]
    small = ["--set", "word2vec.width=8", "--set", "word2vec.epochs=20"]
    done = regard(*command, "--out", tmp_path / "out", *small)
    assert done.code == 0, done.err
    first, *near, last = done.out.splitlines()
    assert first.startswith("16 words of 8 numbers, from ")
    assert [line.split(":")[0].split()[0] for line in near] == ["near"] * 5
    assert last == f"Vectors: {tmp_path / 'out' / 'vectors.txt'}"
    invalid = regard(*command, "--valid", "x")
    assert invalid.code == 2
    assert invalid.err == "regard: --valid does not apply to word2vec, which is trained on --data; remove it.\n"
