"""`regard train word2vec`: words that are used alike get vectors that are alike, in a file that anything reads."""

import json
import random
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from regard.config import load_sources
from regard.config.sources import validate_sources
from regard.config.word2vec import Word2VecRunConfig
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


def trained(text: Path | str, out: Path, *settings: str) -> TrainedVectors:
    given = [f"data.train.files={text}", "word2vec.width=16", "word2vec.subsample=0", *settings]
    return train_word2vec(validate_sources(load_sources(None, given), Word2VecRunConfig), out)


@pytest.mark.parametrize("method", ["skip-gram", "cbow"])
def test_words_that_are_used_alike_are_near_each_other(method: str, text: Path, tmp_path: Path) -> None:
    learned = trained(text, tmp_path / "out", f"word2vec.method={method}", "word2vec.epochs=20")
    for group in (ANIMALS, PLACES):
        for word in group:
            assert set(learned.nearest(word, 3)) == set(group) - {word}


def test_the_folder_holds_vectors_and_settings(text: Path, tmp_path: Path) -> None:
    learned = trained(text, tmp_path / "out")
    found = read_word_vectors(tmp_path / "out" / "vectors.txt", set(learned.words))
    assert found.num_words == len(learned.words) == len(found.vectors)
    np.testing.assert_allclose(found.vectors["cat"], learned.vectors[learned.words.index("cat")], rtol=1e-5)
    settings = tomllib.loads((tmp_path / "out" / "config.toml").read_text())
    assert settings["word2vec"]["width"] == 16
    assert json.loads((tmp_path / "out" / "run.json").read_text())["words"] == len(learned.words)


def test_the_same_settings_give_the_same_vectors(text: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        trained(text, tmp_path / name)
    assert (tmp_path / "one" / "vectors.txt").read_bytes() == (tmp_path / "two" / "vectors.txt").read_bytes()


def test_words_are_split_as_the_word_tokenizer_does(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Well, well: the\tend.\n" * 3)
    learned = trained(tmp_path / "text.txt", tmp_path / "out", "word2vec.min_count=1", "word2vec.lowercase=true")
    assert set(learned.words) == {"well", ",", ":", "the", "end", "."}
    assert learned.words_read == 3 * 7


@pytest.mark.parametrize(
    ("settings", "kind", "sentence"),
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
            "word2vec learns from --data; --source and --target are for translation.",
        ),
        (["data.train.files=missing.txt"], DataError, "missing.txt: not found; check the path."),
        (
            ["word2vec.min_count=1000"],
            DataError,
            "{text}: has no word that occurs 1000 times; lower word2vec.min_count, or provide more text.",
        ),
    ],
)
def test_what_is_wrong_gets_a_sentence(
    settings: list[str], kind: type[Exception], sentence: str, text: Path, tmp_path: Path
) -> None:
    with pytest.raises(kind) as error:
        trained(text, tmp_path / "out", *settings)
    assert str(error.value).removeprefix(f"--set {settings[0]}: ") == sentence.format(text=text)


def test_vectors_are_not_overwritten(text: Path, tmp_path: Path) -> None:
    trained(text, tmp_path / "out", "word2vec.epochs=1")
    with pytest.raises(RunError) as error:
        trained(text, tmp_path / "out")
    assert str(error.value) == f"{tmp_path / 'out'}: already holds the result of a training run; choose another --out."


def test_without_gensim_the_remedy_is_said(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(ConfigError) as error:
        trained(text, tmp_path / "out")
    assert str(error.value) == "word2vec needs gensim; install it with: pip install 'regard[word2vec]'."


def test_the_command_shows_neighbours(text: Path, tmp_path: Path) -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, "-m", "regard", "train", "word2vec", "--data", str(text), *arguments]
        return subprocess.run(call, capture_output=True, text=True)

    done = command("--out", str(tmp_path / "out"), "--set", "word2vec.width=8", "--set", "word2vec.epochs=20")
    assert done.returncode == 0, done.stderr
    first, *near, last = done.stdout.splitlines()
    assert first.startswith("16 words of 8 numbers, from ")
    assert [line.split(":")[0].split()[0] for line in near] == ["near"] * 5
    assert last == f"Vectors: {tmp_path / 'out' / 'vectors.txt'}"
    refused = command("--valid", "x")
    assert refused.returncode == 2
    assert refused.stderr == ("regard: --valid does not apply to word2vec, which learns from --data; leave it out.\n")
