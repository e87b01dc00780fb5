"""`regard translate` and `regard generate`: streams, output files, signals, memory and error messages."""

import gzip
import json
import os
import pty
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import COMMAND, ENVIRONMENT, default_signal_handlers, regard, run_process, start_process
from random_models import SMALL, saved
from regard.config import EncoderDecoderConfig

LINES = ["w4 w5 w6", "", "w20 w21", "   ", "w7"]


def translate_line(process: "subprocess.Popen[str]", line: str) -> str:
    """Write a line to a running command and return its output line."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline()


@pytest.mark.slow
def test_one_output_line_per_input_line(translator: Path) -> None:
    done = run_process("translate", translator, stdin="\n".join(LINES) + "\n")
    assert done.returncode == 0
    assert done.stderr == ""
    assert [bool(line) for line in done.stdout.split("\n")] == [True, False, True, False, True, False]
    alone = regard("translate", translator, stdin="w20 w21")
    assert alone.out == done.stdout.split("\n")[2] + "\n"
    assert regard("translate", translator, stdin="").out == ""


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
@pytest.mark.slow
def test_lines_are_translated_as_they_arrive(translator: Path, engine: str) -> None:
    with start_process("translate", translator, "--engine", engine) as process:
        answers = [translate_line(process, line) for line in ("w4 w5", "", "w6")]
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=60) == 0
    assert [answer.endswith("\n") for answer in answers] == [True] * 3
    assert answers[1] == "\n"


def test_unicode_separators_do_not_end_a_line(translator: Path) -> None:
    odd = "w4\u2028w5\x85w6\x0bw7\x0cw8\n"
    assert regard("translate", translator, stdin=odd * 2).out.count("\n") == 2


def test_files_are_written_atomically(translator: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt.gz", tmp_path / "out.txt"
    with gzip.open(source, "wt") as file:
        file.write("\n".join(LINES) + "\n")
    assert regard("translate", translator, "--input", source, "--output", target).code == 0
    assert target.read_text() == regard("translate", translator, stdin="\n".join(LINES) + "\n").out
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["in.txt.gz", "out.txt"]
    target.write_text("before")
    broken = tmp_path / "broken.txt"
    broken.write_bytes(b"w4\n\xff\n")
    done = regard("translate", translator, "--input", broken, "--output", target)
    assert done.code == 3
    assert done.err == (
        f"regard: {broken}:2: not UTF-8 (byte 1 of the line is 0xff); convert the file, "
        "or skip such lines with --skip-invalid.\n"
    )
    assert target.read_text() == "before"
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt.gz", "out.txt", "broken.txt"}


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_stopped_translation_continues(
    translator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr("regard.cli.translate.MAX_TRANSLATED_LINES", 2)
    source, target, partial = tmp_path / "in.txt", tmp_path / f"out.txt{suffix}", tmp_path / f"out.txt{suffix}.partial"
    source.write_bytes(b"w4 w5\nw6\nw7 w8\nw9\n" + b"\xff\n")  # stops at the fifth line
    files: list[str | Path] = ["--input", source, "--output", target, "--n-best", "2"]
    assert regard("translate", translator, *files, "--resume").code == 3
    assert not target.exists()
    state = json.loads((partial / "state.json").read_text())
    assert state["lines"] == 4
    before = (partial / "output").read_bytes()
    with open(partial / "output", "ab") as file:
        file.write(b"a batch that was not completed")
    other = regard("translate", translator, *files, "--resume", "--beam", "3")
    assert other.code == 2
    assert "was written with another model, input or other options" in other.err
    times = source.stat().st_atime_ns, source.stat().st_mtime_ns
    source.write_bytes(b"w4 w5\nw6\nw7 w8\nw9\n" + b"w\n")  # as long as before
    os.utime(source, ns=times)
    done = regard("translate", translator, *files, "--resume")
    assert (done.code, done.err) == (0, "regard: continuing after 4 lines.\n")
    assert target.read_bytes().startswith(before)
    content = gzip.decompress(target.read_bytes()).decode() if suffix else target.read_text()
    assert content == regard("translate", translator, "--input", source, "--n-best", "2").out
    assert not partial.exists()


def test_a_text_is_translated_like_a_line(translator: Path) -> None:
    assert regard("translate", translator, "w4 w5").out == regard("translate", translator, stdin="w4 w5\n").out
    text = "w4\n\n---\n  00:01,5 --> 00:02,5 \nw5"
    lines = regard("translate", translator, text).out.split("\n")
    assert lines[1:4] == ["", "---", "  00:01,5 --> 00:02,5 "]
    assert "\n".join(lines) == regard("translate", translator, stdin=text).out
    done = regard("translate", translator, "w4", "--input", "file.txt")
    message = "regard: TEXT and --input are both to be translated; pass one of them.\n"
    assert (done.code, done.err) == (2, message)


def test_a_text_that_is_the_name_of_a_file_is_noticed(translator: Path, tmp_path: Path) -> None:
    (tmp_path / "two words.txt").write_text("w4\n")
    done = regard("translate", translator, str(tmp_path / "two words.txt"))
    assert done.code == 0
    assert (
        f"is a file, whose name is translated here; for its lines, write --input '{tmp_path}/two words.txt'" in done.err
    )
    assert "is a file" not in regard("translate", translator, "w4 " * 2000).err


def test_resume_needs_files(translator: Path) -> None:
    done = regard("translate", translator, "--resume", stdin="w4\n")
    message = "regard: --resume: needs files to continue with; pass --input and --output.\n"
    assert (done.code, done.err) == (2, message)


def test_progress_is_logged_to_a_file(translator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.cli.translate.MAX_TRANSLATED_LINES", 2)
    monkeypatch.setattr("regard.cli.input_output.LOG_SECONDS", 0.0)
    (tmp_path / "in.txt").write_text("w4\n" * 4)
    done = regard("translate", translator, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt")
    assert done.code == 0
    assert done.err.startswith("regard: translating: ")
    assert re.fullmatch(
        r"regard: translating: 4 of 4 lines \(100%\), [\d,.]+ per second, 0 min left", done.err.splitlines()[-1]
    )


def test_invalid_lines_are_skipped_and_counted(translator: Path) -> None:
    done = regard("translate", translator, "--skip-invalid", stdin=b"w4\n\xff\nw5\n")
    assert done.code == 0
    assert [bool(line) for line in done.out.split("\n")] == [True, False, True, False]
    assert done.err == (
        "regard: 1 lines skipped: not UTF-8. standard input:2: not UTF-8 (byte 1 of the line is 0xff); "
        "convert the file.\n"
    )


def test_lines_before_an_invalid_one_are_translated(translator: Path) -> None:
    done = regard("translate", translator, stdin=b"w4\n\xff\nw5\n")
    assert done.code == 3
    assert done.out.count("\n") == 1


@pytest.mark.slow
def test_closed_pipe_ends_the_command_silently(translator: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("w4 w5 w6\n" * 5_000)  # the first lines are read before the last are written
    with start_process("translate", translator, "--input", lines, "--beam", "1") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=120) == 128 + signal.SIGPIPE  # as for cat and grep
        assert process.stderr.read() == ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.slow
def test_signals_remove_temporary_files(translator: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    output = tmp_path / "out.txt"
    with start_process("translate", translator, "--output", output) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("w4\n")
        process.stdin.flush()
        wait_for_temporary_files(tmp_path)
        process.send_signal(number)
        assert process.wait(timeout=60) == code, process.stderr.read()
        assert process.stderr.read() == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_whose_exception_is_dropped_still_ends_the_command(number: signal.Signals) -> None:
    script = f"""
import signal, time
from regard.cli import exit_on_signals
with exit_on_signals():
    for _ in range(3):
        try:
            signal.raise_signal({int(number)})
        except:
            pass
    time.sleep(60)
"""
    process = subprocess.run(
        [sys.executable, "-c", script], preexec_fn=default_signal_handlers, timeout=50, check=False
    )
    assert process.returncode == 128 + number


@pytest.mark.slow
def test_temporary_files_of_killed_processes_are_removed(translator: Path, tmp_path: Path) -> None:
    output, other = tmp_path / "out.txt", tmp_path / ".out.txt-original"
    other.write_text("hidden file of another program")
    with (
        start_process("translate", translator, "--output", output) as killed,
        start_process("translate", translator, "--output", output) as running,
    ):
        wait_for_temporary_files(tmp_path, 2)
        killed.kill()
        killed.wait(timeout=60)
        assert regard("translate", translator, "--output", output, stdin="w4\n").code == 0
        assert output.read_text()
        assert len(temporary_files(tmp_path)) == 1  # of the process that is still writing
        assert running.stdin is not None
        running.stdin.close()
        assert running.wait(timeout=60) == 0
    assert sorted(tmp_path.iterdir()) == [other, output]


def temporary_files(folder: Path) -> list[Path]:
    return list(folder.glob(".out.txt-*.tmp"))


def wait_for_temporary_files(folder: Path, count: int = 1) -> None:
    """Wait until this many processes have started to write."""
    deadline = time.monotonic() + 60
    while len(temporary_files(folder)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_gz_output_is_compressed(translator: Path, tmp_path: Path) -> None:
    plain, packed = tmp_path / "out.txt", tmp_path / "out.txt.gz"
    for output in (plain, packed):
        assert regard("translate", translator, "--output", output, stdin="\n".join(LINES)).code == 0
    with gzip.open(packed, "rt") as file:
        assert file.read() == plain.read_text()
    assert regard("translate", translator, "--input", packed).code == 0
    empty = tmp_path / "empty.gz"
    assert regard("translate", translator, "--output", empty, stdin="").code == 0
    assert gzip.decompress(empty.read_bytes()) == b""


@pytest.mark.slow
def test_memory_is_bounded_on_long_input(translator: Path) -> None:
    """Ten times the lines take no more memory."""
    peaks = []
    for lines in (4_000, 40_000):
        process = os.fork()
        if process == 0:
            run_process("translate", translator, "--beam", "1", "--max-tokens", "2", stdin="w4\n" * lines)
            os._exit(min(255, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 4096))
        peaks.append(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
    assert peaks[1] <= peaks[0] + 8  # in units of 4 MiB


def test_long_sentences_are_split_and_counted(translator: Path) -> None:
    done = regard("translate", translator, "--max-source-tokens", "4", stdin="w4 w5 w6, w7 w8 w9 w10\n")
    assert done.out.count("\n") == 1
    assert done.err == "regard: sentences that were too long were translated in 2 parts.\n"


def test_json_output(translator: Path) -> None:
    done = regard("translate", translator, "--json", "--n-best", "2", stdin="w4 w5\n\n")
    first, second = (json.loads(line) for line in done.out.splitlines())
    assert second == {"source": "", "translation": "", "out_of_domain": False, "sentences": []}
    (sentence,) = first["sentences"]
    assert sentence["tokens"] == ["w4", "w5"]
    best, other = sentence["alternatives"]
    assert first["translation"] == best["text"]
    assert best["score"] >= other["score"]
    assert sum(best["token_scores"]) == pytest.approx(best["log_probability"], abs=1e-3)
    assert len(best["alignment"]) == len(best["tokens"])
    assert {len(row) for row in best["attention"]} == {2}
    for row, place in zip(best["attention"], best["alignment"], strict=False):
        assert row[place] == max(row)


def test_n_best_output(translator: Path) -> None:
    done = regard("translate", translator, "--n-best", "2", stdin="w4 w5\n\nw6\n")
    rows = [line.split(" ||| ") for line in done.out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "3", "3"]
    assert float(rows[0][2]) >= float(rows[1][2])


@pytest.mark.slow
def test_ensemble(translator: Path, tmp_path: Path) -> None:
    saved(tmp_path / "other", EncoderDecoderConfig(**SMALL), seed=1)
    votes: list[list[str | Path]] = [[], ["--ensemble", translator], ["--ensemble", tmp_path / "other"]]
    alone, same, mixed = (
        regard("translate", translator, "--engine", "torch", *more, stdin="w4 w5\nw9 w10 w11\n").out for more in votes
    )
    assert alone == same != mixed


def test_verbose_logs_the_engine(translator: Path) -> None:
    done = regard("translate", translator, "-v", "--prefix", "w9", stdin="w4\n")
    assert done.err == "regard: engine: torch, because a prefix is set.\n"
    assert done.out.startswith("w9")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "torhc"], "--engine torhc: should be auto, torch or ctranslate2 (did you mean torch?)."),
        (["--precision", "int4"], "--precision int4: should be int8 or float32 (did you mean int8?)."),
        (["--beam", "0"], "beam is 0; it should be 1 (greedy) to 1,000."),
        (["--n-best", "9"], "n_best is 9, but a beam of 4 gives at most 4; raise it."),
    ],
)
def test_invalid_options_are_errors(translator: Path, arguments: list[str], message: str) -> None:
    done = regard("translate", translator, *arguments, stdin="w4\n")
    assert (done.code, done.err) == (2, f"regard: {message}\n")


def test_missing_files_are_errors(translator: Path, tmp_path: Path) -> None:
    missing = tmp_path / "none"
    done = regard("translate", missing, stdin="w4\n")
    assert (done.code, done.err) == (
        3,
        f"regard: {missing}: does not exist; give the path of a model folder, or of a run.\n",
    )
    done = regard("translate", translator, "--input", missing)
    assert (done.code, done.err) == (3, f"regard: {missing}: not found; check the path.\n")
    done = regard("translate", translator, "--output", missing / "out.txt", stdin="w4\n")
    assert (done.code, done.err) == (
        3,
        f"regard: {missing / 'out.txt'}: cannot be written (No such file or directory); choose another place.\n",
    )


class TestGenerate:
    """`regard generate`."""

    def test_same_seed_same_continuation(self, writer: Path) -> None:
        first, again, other = (
            regard("generate", writer, "--prompt", "w4 w5", "--max-tokens", "9", "--seed", seed) for seed in "112"
        )
        assert first.out.startswith("w4 w5")
        assert first.out == again.out != other.out
        assert first.err == ""

    def test_stream_prints_the_same_text(self, writer: Path) -> None:
        whole, streamed = (
            regard("generate", writer, "--prompt", "w4 w5", "--max-tokens", "9", "--seed", "1", *more).out
            for more in ([], ["--stream"])
        )
        assert whole == streamed

    def test_prompt_from_stdin(self, writer: Path) -> None:
        from_stdin = regard("generate", writer, "--max-tokens", "5", "--seed", "1", stdin="w4 w5\n").out
        assert from_stdin == regard("generate", writer, "--max-tokens", "5", "--seed", "1", "--prompt", "w4 w5").out

    def test_several_prompts_and_samples_as_json(self, writer: Path) -> None:
        done = regard(
            *("generate", writer, "--prompt", "w4", "--prompt", "w5 w6", "--samples", "2"),
            *("--max-tokens", "4", "--json", "--seed", "7"),
        )
        generations = [json.loads(line) for line in done.out.splitlines()]
        assert [(generation["prompt"], generation["sample"]) for generation in generations] == [
            ("w4", 0),
            ("w4", 1),
            ("w5 w6", 0),
            ("w5 w6", 1),
        ]
        assert all(len(generation["tokens"]) <= 4 for generation in generations)

    def test_without_a_seed_continuations_differ(self, writer: Path) -> None:
        texts = {regard("generate", writer, "--prompt", "w4", "--max-tokens", "12").out for _ in range(4)}
        assert len(texts) > 1

    def test_text_beyond_the_context_is_reported(self, writer: Path) -> None:
        done = regard(
            "generate", writer, "--prompt", "w4 " * 30, "--max-tokens", "30", "--min-tokens", "30", "--temperature", "0"
        )
        assert done.code == 0
        assert done.err == "regard: the text exceeded the model's context; its beginning was dropped.\n"

    def test_stdin_that_is_not_utf8_is_an_error(self, writer: Path) -> None:
        done = regard("generate", writer, stdin=b"w4 \xff")
        assert (done.code, done.err) == (3, "regard: standard input: not UTF-8 (byte 4); convert it.\n")

    @pytest.mark.slow
    def test_interactive_session(self, writer: Path) -> None:
        controller, terminal = pty.openpty()
        process = subprocess.Popen(
            [*COMMAND, "generate", str(writer), "--max-tokens", "4", "--seed", "1"],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=ENVIRONMENT | {"TERM": "dumb"},
        )
        os.close(terminal)
        seen = ""

        def wait_for(text: str, count: int) -> None:
            nonlocal seen
            while seen.count(text) < count:
                seen += os.read(controller, 1000).decode()

        for turn, line in enumerate(["w4", "", "/new", "w4"], start=1):
            wait_for("> ", turn)
            os.write(controller, f"{line}\n".encode())
        wait_for("> ", 5)
        os.write(controller, b"\x04")
        assert process.wait(timeout=60) == 0
        os.close(controller)
        answers = [part.split("\r\n", 2)[1] for part in seen.split("> ")[1:] if "\r\n" in part]
        assert "Ctrl-D" in seen
        assert answers[0] == answers[3] != answers[1]  # the second continues the first; /new discards both
