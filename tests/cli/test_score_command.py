"""`regard score`: log-probabilities, streams and error messages."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import regard as package
from commands import regard
from random_models import SMALL, saved
from regard.config import DecoderOnlyConfig, EncoderDecoderConfig, EncoderOnlyConfig
from regard.evaluation import likelihood

PAIRS = [("w4 w5", "w6 w7"), ("w8", "w9 w10 w11")]
TSV = "".join(f"{source}\t{target}\n" for source, target in PAIRS)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    saved(folder / "translator", EncoderDecoderConfig(**SMALL))
    saved(folder / "gpt", DecoderOnlyConfig(**SMALL))
    saved(folder / "bert", EncoderOnlyConfig(**SMALL))
    return folder


@pytest.fixture(scope="module")
def totals(models: Path) -> list[float]:
    sources, targets = zip(*PAIRS, strict=True)
    return package.load(models / "translator").score(sources, targets)


def test_one_log_probability_per_pair(
    models: Path, totals: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text(TSV)
    records = [json.dumps({"source": source, "target": target}) for source, target in PAIRS]
    (tmp_path / "pairs.jsonl").write_text("\n".join(records))
    for side, name in enumerate(("source", "target")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS))
    expected = "".join(f"{total:.4f}\n" for total in totals)
    for options in ("--data pairs.tsv", "--data pairs.jsonl", "--source source --target target"):
        done = regard("score", models / "translator", *options.split())
        assert (done.code, done.out, done.err) == (0, expected, "")


@pytest.mark.parametrize("options", [[], ["--data", "-"]])
def test_pairs_from_stdin(models: Path, totals: list[float], options: list[str]) -> None:
    done = regard("score", models / "translator", *options, stdin=TSV.encode())
    assert done.out == "".join(f"{total:.4f}\n" for total in totals)


def test_language_model_scores_every_line_even_empty_ones(models: Path) -> None:
    texts = ["w4 w5", "", "w6"]
    expected = package.load(models / "gpt").score(texts)
    done = regard("score", models / "gpt", stdin="\n".join(texts).encode())
    assert done.out == "".join(f"{total:.4f}\n" for total in expected)


def test_json_text_with_several_lines(models: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": "w4\nw5"}))
    done = regard("score", models / "gpt", "--data", tmp_path / "texts.jsonl", "--json")
    assert json.loads(done.out)["text"] == "w4\nw5"


def test_token_scores_in_columns(models: Path) -> None:
    done = regard("score", models / "gpt", "--tokens", stdin=b"w4 w5\n")
    total, *tokens = done.out.rstrip("\n").split("\t")
    parted = [token.rpartition(":") for token in tokens]
    assert [token for token, _, _ in parted] == ["w4", "w5", "[EOS]"]
    assert sum(float(score) for _, _, score in parted) == pytest.approx(float(total), abs=1e-3)


def test_tokens_are_escaped_in_columns() -> None:
    from regard.cli.score import ESCAPES

    assert "a\tb\nc\\d\x1b".translate(ESCAPES) == "a\\tb\\nc\\\\d\\x1b"


def test_json_has_texts_tokens_and_scores(models: Path, totals: list[float]) -> None:
    done = regard("score", models / "translator", "--json", stdin=TSV.encode())
    records = [json.loads(line) for line in done.out.splitlines()]
    assert [(record["source"], record["target"]) for record in records] == PAIRS
    assert [record["tokens"] for record in records] == [["w6", "w7", "[EOS]"], ["w9", "w10", "w11", "[EOS]"]]
    assert [record["total"] for record in records] == pytest.approx(totals, abs=1e-5)
    for record in records:
        assert sum(record["scores"]) == pytest.approx(record["total"], abs=1e-4)
        assert record["mean"] == pytest.approx(record["total"] / len(record["tokens"]), abs=1e-5)


def test_run_folder_uses_its_best_model(models: Path, tmp_path: Path, totals: list[float]) -> None:
    saved(tmp_path / "run" / "best", EncoderDecoderConfig(**SMALL))
    done = regard("score", tmp_path / "run", stdin=TSV.encode())
    assert done.out == "".join(f"{total:.4f}\n" for total in totals)


@pytest.mark.slow
def test_streams_are_scored_line_by_line(models: Path, tmp_path: Path) -> None:
    """Pairs from stdin, and texts from a named pipe."""
    os.mkfifo(tmp_path / "texts")
    for arguments, line in (
        (["translator"], "w4\tw5\n"),
        (["gpt", "--data", str(tmp_path / "texts")], "w4 w5\n"),
    ):
        command = [sys.executable, "-m", "regard", "score", *arguments]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=models) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            with process.stdin if len(arguments) == 1 else (tmp_path / "texts").open("w") as pipe:
                answers = set()
                for _ in range(3):
                    pipe.write(line)
                    pipe.flush()
                    answers.add(process.stdout.readline())
            assert process.stdout.read() == ""
        assert process.returncode == 0
        assert len(answers) == 1


def test_files_are_scored_in_batches(models: Path, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("w4\nw5\n")
    with mock.patch.object(likelihood, "score_texts", wraps=likelihood.score_texts) as scored:
        regard("score", models / "gpt", "--data", tmp_path / "texts")
    assert [call.args[1] for call in scored.call_args_list] == [["w4", "w5"]]


@pytest.mark.slow
def test_closed_pipe_ends_scoring_silently(models: Path) -> None:
    command = f"yes w4 | {shlex.quote(sys.executable)} -m regard score {shlex.quote(str(models / 'gpt'))} | head -n 3"
    command = f"set -o pipefail; {command}; echo ${{PIPESTATUS[1]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    *scores, code = done.stdout.splitlines()
    assert (len(scores), code, done.stderr) == (3, "141", "")


def test_invalid_lines_are_skipped_and_counted(models: Path, totals: list[float]) -> None:
    bad = TSV.replace("\n", "\nno tab\n", 1).encode() + b"\xff\n"
    done = regard("score", models / "translator", "--skip-invalid", stdin=bad)
    assert (done.code, done.out) == (0, "".join(f"{total:.4f}\n" for total in totals))
    assert done.err == (
        "1 skipped: too few columns (standard input:2: no tab; write source, tab, target).\n"
        "1 skipped: not UTF-8 (standard input:4: not UTF-8 (byte 1 of the line is 0xff); convert the file).\n"
    )


@pytest.mark.parametrize(
    ("model", "arguments", "stdin", "code", "message"),
    [
        ("nowhere", [], b"", 3, "nowhere: does not exist; give the path of a model folder, or of a run."),
        (
            "translator",
            [],
            b"w4\tw5\nw4\n",
            3,
            "standard input:2: no tab; write source, tab, target, or skip such lines with --skip-invalid.",
        ),
        (
            "translator",
            [],
            b"w4\tw5\nw4\t \n",
            3,
            "standard input:2: empty target; fill it in, or skip such lines with --skip-invalid.",
        ),
        (
            "gpt",
            [],
            b"w4\n\xff\n",
            3,
            "standard input:2: not UTF-8 (byte 1 of the line is 0xff); convert the file, or skip such lines with "
            "--skip-invalid.",
        ),
        ("gpt", ["--data", "missing.txt"], b"", 3, "missing.txt: not found; check the path."),
        (
            "translator",
            ["--source", "a.en"],
            b"",
            2,
            "--target is missing: a translator needs both sides, line by line.",
        ),
        (
            "translator",
            ["--source", "-", "--target", "-"],
            b"",
            2,
            "standard input (-) can be read only once; pass the other part as a file.",
        ),
        (
            "gpt",
            ["--source", "a", "--target", "b"],
            b"",
            2,
            "gpt is a language model; pass --data instead of --source and --target.",
        ),
        (
            "bert",
            [],
            b"w4",
            2,
            "bert is an encoder-only Transformer, which generates no text; pass a translator or a language model.",
        ),
        (
            "gpt",
            ["--data", "builtin:phrasebook"],
            b"",
            3,
            "builtin:phrasebook: holds sentence pairs, not documents; use builtin:python-docs and "
            "builtin:python-docs-dev.",
        ),
    ],
)
def test_invalid_input_is_an_error(
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    arguments: list[str],
    stdin: bytes,
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(models)
    done = regard("score", model, *arguments, stdin=stdin)
    assert (done.code, done.err) == (code, f"regard: {message}\n")


def test_lines_before_an_invalid_one_are_scored(models: Path) -> None:
    done = regard("score", models / "translator", stdin=TSV + "no tab\n")
    assert (done.code, done.out.count("\n")) == (3, len(PAIRS))


def test_no_input_in_a_terminal_is_an_error(models: Path) -> None:
    done = regard("score", models / "gpt", terminal=True)
    assert (done.code, done.err) == (
        2,
        "regard: no input; pass --data, or --source and --target.\n",
    )
