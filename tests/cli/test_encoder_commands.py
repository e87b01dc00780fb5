"""`regard classify`, `regard embed` and `regard evaluate` with text encoders."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from commands import regard
from labeled_runs import WORDS
from regard.config import (
    ClassHeadConfig,
    Config,
    DecoderOnlyConfig,
    EncoderOnlyConfig,
    LearnedPositionsConfig,
    ModelConfig,
    TagHeadConfig,
    TokenizerConfig,
)
from regard.data.tokenizer import train_tokenizer
from regard.models import build, save

SIZES: dict[str, Any] = {"width": 16, "layers": 1, "heads": 2, "feed_forward": 24}
MODELS: dict[str, ModelConfig] = {
    "classifier": EncoderOnlyConfig(
        **SIZES, positions=LearnedPositionsConfig(max_length=8), head=ClassHeadConfig(labels=("bad", "good"))
    ),
    "tagger": EncoderOnlyConfig(**SIZES, head=TagHeadConfig(labels=("O", "B-X", "I-X"))),
    "gpt": DecoderOnlyConfig(**SIZES),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    tokenizer = train_tokenizer([" ".join(WORDS)], TokenizerConfig(kind="word", byte_fallback=False), vocab_size=50)
    for name, model in MODELS.items():
        model = model.model_copy(update={"vocab_size": len(tokenizer)})
        files = {"tokenizer.json": tokenizer.to_json()}
        save(folder / name, build(model), Config(model=model), extra_files=files)
    return folder


def test_one_label_per_line(models: Path) -> None:
    done = regard("classify", models / "classifier", stdin=b"the cat\n\na dog\tsees\n")
    assert done.code == 0, done.err
    first, empty, pair, end = done.out.split("\n")
    assert (empty, end) == ("", "")
    assert {first, pair} <= {"bad", "good"}


def test_probabilities_of_all_labels(models: Path) -> None:
    done = regard("classify", models / "classifier", "--probabilities", stdin=b"the cat\n")
    label, *columns = done.out.strip().split("\t")
    assert {name.partition(":")[0] for name in columns} == {"bad", "good"}
    assert columns[0].startswith(f"{label}:")
    result = json.loads(regard("classify", models / "classifier", "--json", stdin=b"the\tcat\n").out)
    assert (result["text"], result["second"], result["label"]) == ("the", "cat", label)
    assert sum(result["probabilities"].values()) == pytest.approx(1, abs=1e-3)


def test_tagger_prints_columns(models: Path) -> None:
    done = regard("classify", models / "tagger", stdin=b"the cat\nsees\n")
    rows = done.out.split("\n")
    assert [row.partition("\t")[0] for row in rows] == ["the", "cat", "", "sees", "", ""]
    result = json.loads(regard("classify", models / "tagger", "--json", stdin=b"the cat\n").out)
    assert result["words"] == ["the", "cat"]
    assert len(result["tags"]) == len(result["probabilities"]) == 2


def test_truncated_texts_are_reported_once(models: Path) -> None:
    long = ("cat " * 30 + "\n").encode()
    for command in ("classify", "embed"):
        done = regard(command, models / "classifier", stdin=long * 2)
        assert done.err == "regard: 2 texts were longer than 8 tokens and truncated.\n"


def test_vectors_are_equal_in_every_format(models: Path, tmp_path: Path) -> None:
    texts = b"the cat\na dog sees\n"
    printed = regard("embed", models / "classifier", stdin=texts).out
    expected = np.array([[float(number) for number in line.split("\t")] for line in printed.strip().split("\n")])
    assert expected.shape == (2, 16)
    for name in ("x.npy", "x.safetensors", "x.jsonl", "x.tsv"):
        done = regard("embed", models / "classifier", "-o", tmp_path / name, stdin=texts)
        assert (done.code, done.out) == (0, "")
    lines = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [line["text"] for line in lines] == ["the cat", "a dog sees"]
    arrays = {
        "npy": np.load(tmp_path / "x.npy"),
        "safetensors": load_file(tmp_path / "x.safetensors")["vectors"],
        "jsonl": np.array([line["vector"] for line in lines]),
        "tsv": np.loadtxt(tmp_path / "x.tsv"),
    }
    for vectors in arrays.values():
        assert np.allclose(vectors, expected, atol=1e-6)


def test_classifier_is_evaluated(models: Path, tmp_path: Path) -> None:
    data = tmp_path / "test.tsv"
    data.write_text("label\tsentence\ngood\tthe cat\nbad\ta dog\ngood\tthe fish\n")
    done = regard("evaluate", models / "classifier", "--data", data, "--quiet")
    assert done.code == 0, done.err
    assert "accuracy" in done.out
    assert "macro-F1" in done.out
    assert "true ↓  predicted →" in done.out
    result = json.loads(regard("evaluate", models / "classifier", "--data", data, "--json", "--quiet").out)
    assert result["sentences"] == 3
    assert np.trace(result["confusion"]["counts"]) / 3 == pytest.approx(result["scores"]["accuracy"])


def test_tagger_is_evaluated_with_spans(models: Path, tmp_path: Path) -> None:
    data = tmp_path / "test.conll"
    data.write_text("the NN B-X\ncat NN I-X\n\nsees VB O\n")
    result = json.loads(regard("evaluate", models / "tagger", "--data", data, "--json", "--quiet").out)
    assert set(result["scores"]) == {"loss", "accuracy", "macro_f1", "span_f1"}
    assert sum(map(sum, result["confusion"]["counts"])) == 3
    done = regard("evaluate", models / "tagger", "--data", data, "--tag-column", "2", "--quiet")
    assert done.code == 3
    assert done.err == (
        f"regard: {data}:1: unknown label 'NN', the labels are O, B-X, I-X; correct it, or skip such lines with "
        "--skip-invalid.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["classify", "gpt"],
            2,
            "gpt: is a model of type decoder-only Transformer, which does not encode texts as vectors or labels; "
            "use an encoder, as trained with regard train masked, elmo, classify or tag.",
        ),
        (
            ["embed", "gpt"],
            2,
            "gpt: is a model of type decoder-only Transformer, which does not encode texts as vectors or labels; "
            "use an encoder, as trained with regard train masked, elmo, classify or tag.",
        ),
        (
            ["embed", "classifier", "--pooling", "men"],
            2,
            "--pooling men: should be mean, first, first-dense or first-relu (did you mean mean?).",
        ),
        (
            ["embed", "classifier", "-o", "x.csv"],
            2,
            "--output x.csv: should end in .npy, .safetensors, .jsonl or .tsv.",
        ),
        (
            ["embed", "classifier", "--pooling", "first-dense"],
            2,
            "pooling = first-dense: this model was trained without a dense layer; use mean or first.",
        ),
        (["embed", "classifier", "-i", "gone.txt"], 3, "gone.txt: not found; check the path."),
        (
            ["evaluate", "classifier", "--source", "a", "--target", "b"],
            2,
            "classifier is a classifier, which reads --data, not --source and --target.",
        ),
        (
            ["evaluate", "classifier", "--data", "a", "--beam", "3"],
            2,
            "--beam: is for translators, but classifier is a classifier; remove it.",
        ),
        (
            ["evaluate", "gpt", "--data", "a", "--tag-column", "3"],
            2,
            "--tag-column: is for taggers, but gpt is a language model; remove it.",
        ),
        (
            ["evaluate", "classifier", "--data", "/dev/null"],
            3,
            "/dev/null: contains no texts to evaluate a model on; use a file with labeled texts.",
        ),
        (
            ["evaluate", "tagger", "--data", "/dev/null"],
            3,
            "/dev/null: contains no sentences to evaluate a model on; use a file with tagged sentences.",
        ),
    ],
)
def test_invalid_input_is_an_error(
    arguments: list[str], code: int, message: str, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(models)
    done = regard(*arguments)
    assert (done.code, done.err) == (code, f"regard: {message}\n")
