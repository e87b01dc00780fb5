"""`regard evaluate`: scores, tables, output files and error messages."""

import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from starlette.testclient import TestClient

import regard as package
from commands import regard
from random_models import SMALL, saved
from regard.config import DecoderOnlyConfig, EncoderDecoderConfig, EncoderOnlyConfig, LearnedPositionsConfig
from regard.data.readers.base import Pair
from regard.errors import DataError
from regard.serving.app import build_app
from regard.serving.loaded_models import LoadedModel
from regard.serving.service import Service

SOURCES = ["w4 w5 w6", "w7 w8", "w9 w10 w11 w12 w13 w14 w15"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    saved(folder / "translator", EncoderDecoderConfig(**SMALL))
    saved(folder / "gpt", DecoderOnlyConfig(**SMALL))
    saved(folder / "bert", EncoderOnlyConfig(**SMALL))
    saved(folder / "short-gpt", DecoderOnlyConfig(**SMALL, positions=LearnedPositionsConfig(max_length=8)))
    (folder / "empty.tsv").write_text("")
    return folder


@pytest.fixture(scope="module")
def outputs(models: Path) -> list[str]:
    model = package.load(models / "translator")
    return model.translate(SOURCES, beam=2, length_penalty=1.0, engine="torch")


@pytest.fixture(scope="module")
def pairs(models: Path, outputs: list[str]) -> Path:
    """References that the translator gets right, half right and wrong."""
    right, half, _ = outputs
    references = [right, " ".join(half.split()[: len(half.split()) // 2]) + " w28", "w20 w21 w22 w23 w24"]
    path = models / "pairs.tsv"
    path.write_text("".join(f"{pair[0]}\t{pair[1]}\n" for pair in zip(SOURCES, references, strict=True)))
    return path


SEARCH = ["--beam", "2", "--length-penalty", "1", "--engine", "torch"]


def test_scores_equal_sacrebleu_and_the_models_loss(models: Path, pairs: Path, outputs: list[str]) -> None:
    references = [line.split("\t")[1] for line in pairs.read_text().splitlines()]
    done = regard("evaluate", models / "translator", "--data", pairs, *SEARCH, "--json", "--quiet")
    assert (done.code, done.err) == (0, "")
    result = json.loads(done.out)
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())):
        assert result["scores"][name] == metric.corpus_score(outputs, [references]).score
        assert result["signatures"][name] == str(metric.get_signature())
    scores = package.load(models / "translator").score_detailed(SOURCES, references)
    loss = -sum(score.total for score in scores) / sum(len(score.tokens) for score in scores)
    assert result["scores"]["loss"] == pytest.approx(loss)
    assert result["scores"]["perplexity"] == pytest.approx(math.exp(loss))
    assert result["scores"]["exact"] == pytest.approx(1 / 3)
    assert result["sentences"] == 3
    assert (result["beam"], result["length_penalty"], result["engine"]) == (2, 1.0, "torch")
    assert (result["model"], result["data"]) == (str(models / "translator"), [str(pairs)])


def test_columns_of_the_test_data(models: Path, pairs: Path, tmp_path: Path) -> None:
    rows = [line.split("\t") for line in pairs.read_text().splitlines()]
    table = tmp_path / "test.csv"
    table.write_text("b,n,a\n" + "".join(f'"{target}",{n},{source}\n' for n, (source, target) in enumerate(rows)))
    columns = ["--source-column", "a", "--target-column", "1"]
    plain = regard("evaluate", models / "translator", "--data", pairs, *SEARCH, "--json", "--quiet")
    done = regard("evaluate", models / "translator", "--data", table, *columns, *SEARCH, "--json", "--quiet")
    assert done.code == 0, done.err
    assert json.loads(done.out)["scores"] == json.loads(plain.out)["scores"]
    assert done.err == (
        f"{table}: line 1 is a header; source = column 3 (a), target = column 1 (b), not used: column 2 (n).\n"
    )
    wrong = regard("evaluate", models / "translator", "--data", pairs, "--label-column", "1", "--quiet")
    assert (wrong.code, wrong.err) == (2, "regard: --label-column: does not apply to sentence pairs; remove it.\n")


def test_scores_by_sentence_length(models: Path, pairs: Path, outputs: list[str]) -> None:
    references = [line.split("\t")[1] for line in pairs.read_text().splitlines()]
    done = regard("evaluate", models / "translator", "--data", pairs, *SEARCH, "--json", "--quiet")
    short, long = json.loads(done.out)["lengths"]
    assert (short["min_words"], short["max_words"], short["sentences"]) == (1, 5, 2)
    assert (long["min_words"], long["max_words"], long["sentences"]) == (6, 10, 1)
    assert short["chrf"] == CHRF().corpus_score(outputs[:2], [references[:2]]).score


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--split-sentences"], ["--no-split-sentences"]])
def test_the_same_rule_as_translate_python_and_http(tmp_path: Path, options: list[str]) -> None:
    """Lines of several sentences have the same translations everywhere."""
    folder, sources = (
        tmp_path / "translator",
        ["W4 w5. W6 w7!", "w8. W9? W10 w11 w12.", "w13", "W14. W15 w16 w17 w18 w19."],
    )
    saved(folder, EncoderDecoderConfig(**SMALL))
    config = json.loads((folder / "config.json").read_text())
    config["data"] = {"trained_tokens": 5, "trained_sentences": 2}
    (folder / "config.json").write_text(json.dumps(config))
    (tmp_path / "pairs.tsv").write_text("".join(f"{source}\tw20\n" for source in sources))
    engine = ["--engine", "torch", *options]
    output = tmp_path / "out.txt"
    arguments = ["evaluate", folder, "--data", tmp_path / "pairs.tsv", "--output", output, "--json", "-q"]
    rules = {"": "above 2 sentences or 5 tokens", "--split-sentences": "always", "--no-split-sentences": "never"}
    assert json.loads(regard(*map(str, arguments), *engine).out)["split_sentences"] == rules["".join(options)]
    translated = output.read_text().splitlines()
    assert regard("translate", folder, *engine, stdin="\n".join(sources)).out.splitlines() == translated
    forced = {"": None, "--split-sentences": True, "--no-split-sentences": False}["".join(options)]
    model = package.load(folder)
    assert model.translate(sources, split_sentences=forced, engine="torch") == translated
    loaded = LoadedModel("model", model, ("en", "it"), engine="torch")
    with TestClient(build_app(Service([loaded], beam=4))) as client:
        body = {"text": sources, "split_sentences": forced}
        response = client.post("/v1/translate", json=body, headers={"host": "localhost"}).json()
    assert [line["translation"] for line in response["translations"]] == translated


def test_grouped_references(models: Path, outputs: list[str], tmp_path: Path) -> None:
    data = tmp_path / "several.tsv"
    data.write_text(f"{SOURCES[0]}\tw20 w21\n{SOURCES[1]}\tw20 w21\n{SOURCES[0]}\t{outputs[0]}\n")
    result = {}
    for how in ("separate", "grouped"):
        done = regard("evaluate", models / "translator", "--data", data, *SEARCH, "--references", how, "--json", "-q")
        result[how] = json.loads(done.out)
    assert (result["separate"]["sentences"], result["separate"]["scores"]["exact"]) == (3, pytest.approx(1 / 3))
    assert (result["grouped"]["sentences"], result["grouped"]["scores"]["exact"]) == (2, pytest.approx(1 / 2))
    assert result["separate"]["scores"]["loss"] == result["grouped"]["scores"]["loss"]


def test_bleu_tokenizer_option(models: Path, pairs: Path) -> None:
    done = regard(
        "evaluate", models / "translator", "--data", pairs, *SEARCH, "--bleu-tokenizer", "none", "--json", "-q"
    )
    assert "tok:none" in json.loads(done.out)["signatures"]["bleu"]


def test_table_has_every_score_with_its_signature(models: Path, pairs: Path) -> None:
    arguments = ["evaluate", str(models / "translator"), "--data", str(pairs), *SEARCH]
    scores = json.loads(regard(*arguments, "--json").out)["scores"]
    done = regard(*arguments)
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert lines[:2] == [
        f"{models / 'translator'} on {pairs}",
        "beam 2, length penalty 1.0, engine torch, split sentences always",
    ]
    for name, key in (("BLEU", "bleu"), ("chrF", "chrf"), ("TER", "ter")):
        assert f"{name} {scores[key]:.1f}" in lines
        assert any(line.startswith(f"{name} signature: nrefs:1|case:") for line in lines)
    assert "exact match 33%" in lines
    assert f"loss {scores['loss']:.3f}" in lines
    assert "source words sentences BLEU chrF" in lines
    assert any(line.startswith("1–5 2 ") for line in lines)
    assert "\x1b" not in done.out
    assert done.err == "translating: 3 of 3\nscoring references: 3 of 3\n"


def test_translations_are_written_one_per_line(models: Path, pairs: Path, outputs: list[str], tmp_path: Path) -> None:
    done = regard("evaluate", models / "translator", "--data", pairs, *SEARCH, "--output", tmp_path / "out.txt")
    assert done.code == 0
    assert (tmp_path / "out.txt").read_text("utf-8") == "".join(f"{output}\n" for output in outputs)


def test_translations_are_written_atomically(
    models: Path, pairs: Path, outputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["evaluate", str(models / "translator"), "--data", str(pairs), *SEARCH, "--quiet", "--output"]
    assert regard(*arguments, tmp_path / "out.gz").code == 0
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()).decode() == "".join(f"{output}\n" for output in outputs)
    kept = tmp_path / "out.txt"
    kept.write_text("before")

    def half(*arguments: object) -> Iterator[str]:
        yield outputs[0]
        raise DataError("the disk failed half-way.")

    monkeypatch.setattr("regard.tasks.translation.translate_pairs", half)
    done = regard(*arguments, kept)
    assert (done.code, done.err) == (3, "regard: the disk failed half-way.\n")
    assert kept.read_text() == "before"
    assert sorted(tmp_path.iterdir()) == [tmp_path / "out.gz", kept]


def test_ctranslate2_is_the_default_engine(models: Path, pairs: Path) -> None:
    done = regard("evaluate", models / "translator", "--data", pairs, "--precision", "float32", "--json")
    result = json.loads(done.out)
    assert (result["engine"], result["precision"], result["beam"]) == ("ctranslate2", "float32", 4)
    done = regard("evaluate", models / "translator", "--data", pairs)
    assert "beam 4, length penalty 0.6, engine ctranslate2, precision int8, split sentences always\n" in done.out


def test_translator_on_the_builtin_phrasebook(models: Path) -> None:
    few = [Pair("w4 w5", "w6"), Pair("w7", "w8")]  # the phrasebook itself takes its time
    with mock.patch("regard.data.readers.builtin.builtin_pairs", return_value=iter(few)) as read:
        done = regard("evaluate", models / "translator", "--data", "builtin:phrasebook-test", "--json")
    read.assert_called_once_with("builtin:phrasebook-test")
    assert json.loads(done.out)["sentences"] == 2


def test_language_model_reports_bits_per_byte(models: Path, tmp_path: Path) -> None:
    text = "w4 w5 w6\nw7\n"
    (tmp_path / "text.txt").write_text(text)
    score = package.load(models / "gpt").score(text)
    done = regard("evaluate", models / "gpt", "--data", tmp_path / "text.txt", "--json")
    result = json.loads(done.out)
    assert (result["tokens"], result["bytes"], result["context_length"]) == (5, len(text), 256)
    assert result["scores"]["loss"] == pytest.approx(-score / 5)
    assert result["scores"]["perplexity"] == pytest.approx(math.exp(-score / 5))
    assert result["scores"]["bits_per_byte"] == pytest.approx(-score / math.log(2) / len(text))
    lines = [
        " ".join(line.split())
        for line in regard("evaluate", models / "gpt", "--data", "-", stdin=text.encode()).out.splitlines()
    ]
    assert lines[:2] == [f"{models / 'gpt'} on -", "context length 256"]
    assert f"bits per byte {result['scores']['bits_per_byte']:.3f}" in lines
    assert {"tokens 5", "bytes 12"} <= set(lines)


def test_context_length_of_a_language_model(models: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("w4 w5 w6 w7 " * 10)
    arguments = ["evaluate", str(models / "short-gpt"), "--data", str(tmp_path / "text.txt"), "--json"]
    whole, less = json.loads(regard(*arguments).out), json.loads(regard(*arguments, "--context-length", "2").out)
    assert (whole["context_length"], less["context_length"]) == (8, 2)
    assert whole["tokens"] == less["tokens"] == 41
    assert whole["scores"]["loss"] != less["scores"]["loss"]


def test_language_model_on_the_builtin_docs(models: Path) -> None:
    done = regard("evaluate", models / "gpt", "--data", "builtin:python-docs-dev", "--json")
    assert json.loads(done.out)["bytes"] > 10_000


def test_invalid_lines_are_skipped_and_counted(models: Path, pairs: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.tsv").write_text("no tab\n" + pairs.read_text())
    done = regard(
        "evaluate", models / "translator", "--data", tmp_path / "bad.tsv", *SEARCH, "--skip-invalid", "--json"
    )
    assert json.loads(done.out)["sentences"] == 3
    assert done.err.endswith(
        f"1 skipped: too few columns ({tmp_path / 'bad.tsv'}:1: no tab; write source, tab, target).\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["translator"], 2, "no input; pass --data, or --source and --target."),
        (["translator", "--data", "missing.tsv"], 3, "missing.tsv: not found; check the path."),
        (["translator", "--data", "empty.tsv"], 3, "empty.tsv: has no pairs to evaluate a model on; provide some."),
        (
            ["gpt", "--data", "empty.tsv"],
            3,
            "empty.tsv: contains no text to evaluate a model on; use a file with text.",
        ),
        (
            ["nowhere", "--data", "pairs.tsv"],
            3,
            "nowhere: does not exist; give the path of a model folder, or of a run.",
        ),
        (["translator", "--target", "a"], 2, "--source is missing: a translator needs both sides, line by line."),
        (
            ["translator", "--data", "pairs.tsv", "--beam", "0"],
            2,
            "beam is 0; it should be 1 (greedy) to 1,000.",
        ),
        (
            ["translator", "--data", "pairs.tsv", "--length-penalty", "-1"],
            2,
            "length_penalty is -1.0; it should be 0 to 10.",
        ),
        (
            ["translator", "--data", "pairs.tsv", "--engine", "jax"],
            2,
            "there is no engine 'jax'; the engines are auto, torch and ctranslate2.",
        ),
        (
            ["translator", "--data", "pairs.tsv", "--precision", "int4"],
            2,
            "there is no precision 'int4'; the precisions are int8 and float32.",
        ),
        (
            ["translator", "--data", "pairs.tsv", "--bleu-tokenizer", "moses"],
            2,
            "--bleu-tokenizer moses: is not one of sacrebleu's; use 13a, intl, char, zh, none.",
        ),
        (
            ["translator", "--data", "pairs.tsv", "--references", "all"],
            2,
            "--references all: should be separate or grouped.",
        ),
        (
            ["translator", "--data", "pairs.tsv", "--output", "no/such/folder"],
            3,
            "no/such/folder: cannot be written (No such file or directory); choose another place.",
        ),
        (
            ["translator", "--data", "pairs.tsv", "--output", "."],
            3,
            ".: cannot be written (Is a directory); choose another place.",
        ),
        (
            ["translator", "--data", "pairs.tsv", "--output", "/dev/full", "--quiet"],
            3,
            "/dev/full: cannot be written (No space left on device); free some space.",
        ),
        (
            ["translator", "--data", "pairs.tsv", "--context-length", "8"],
            2,
            "--context-length: is for bidirectional language models, language models and masked language models, but "
            "translator is a translator; remove it.",
        ),
        (
            ["gpt", "--data", "empty.tsv", "--length-penalty", "1"],
            2,
            "--length-penalty: is for translators, but gpt is a language model; remove it.",
        ),
        (
            ["short-gpt", "--data", "pairs.tsv", "--context-length", "9"],
            2,
            "--context-length 9: this network has 8 positions; lower it.",
        ),
        (
            ["gpt", "--source", "a", "--target", "b"],
            2,
            "gpt is a language model, which reads --data, not --source and --target.",
        ),
        (
            ["bert", "--data", "pairs.tsv"],
            2,
            "bert is an encoder-only Transformer without a head, which predicts nothing; pass another model.",
        ),
    ],
)
def test_invalid_input_is_an_error(
    models: Path, pairs: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(models)
    done = regard("evaluate", *arguments)
    assert (done.code, done.out, done.err) == (code, "", f"regard: {message}\n")
