"""`regard translate` and `regard generate`: line for line, at once, bounded, and quiet when nobody listens."""

import gzip
import json
import os
import pty
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

import command_line
from command_line import COMMAND, ENVIRONMENT, begun
from commands import regard
from random_models import SMALL, saved
from regard.config import EncoderDecoderConfig

LINES = ["w4 w5 w6", "", "w20 w21", "   ", "w7"]


def answered(process: "subprocess.Popen[str]", line: str) -> str:
    """Write a line to a command, and read its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_lines_come_out_one_for_one(translator: Path) -> None:
    done = command_line.regard("translate", translator, given="\n".join(LINES) + "\n")
    assert done.returncode == 0
    assert done.stderr == ""
    assert [bool(line) for line in done.stdout.split("\n")] == [True, False, True, False, True, False]
    alone = regard("translate", translator, stdin="w20 w21")
    assert alone.out == done.stdout.split("\n")[2] + "\n"
    assert regard("translate", translator, stdin="").out == ""


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_a_line_is_answered_before_the_next_is_given(translator: Path, engine: str) -> None:
    with begun("translate", translator, "--engine", engine) as process:
        answers = [answered(process, line) for line in ("w4 w5", "", "w6")]
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=60) == 0
    assert [answer.endswith("\n") for answer in answers] == [True] * 3
    assert answers[1] == "\n"


def test_separators_of_unicode_end_no_line(translator: Path) -> None:
    odd = "w4\u2028w5\x85w6\x0bw7\x0cw8\n"
    assert regard("translate", translator, stdin=odd * 2).out.count("\n") == 2


def test_files_are_written_whole(translator: Path, tmp_path: Path) -> None:
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


def test_bad_lines_are_skipped_and_counted_where_that_is_asked(translator: Path) -> None:
    done = regard("translate", translator, "--skip-invalid", stdin=b"w4\n\xff\nw5\n")
    assert done.code == 0
    assert [bool(line) for line in done.out.split("\n")] == [True, False, True, False]
    assert done.err == (
        "regard: 1 lines skipped: not UTF-8. standard input:2: not UTF-8 (byte 1 of the line is 0xff); "
        "convert the file.\n"
    )


def test_lines_before_a_bad_one_are_translated(translator: Path) -> None:
    done = regard("translate", translator, stdin=b"w4\n\xff\nw5\n")
    assert done.code == 3
    assert done.out.count("\n") == 1


def test_a_reader_that_leaves_ends_it_quietly(translator: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("w4 w5 w6\n" * 5_000)  # so many that the first are read before the last are written
    with begun("translate", translator, "--input", lines, "--beam", "1") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=120) == 128 + signal.SIGPIPE  # as a shell says of cat and grep
        assert process.stderr.read() == ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_it_and_leaves_no_part_of_a_file(
    translator: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    output = tmp_path / "out.txt"
    with begun("translate", translator, "--output", output) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("w4\n")
        process.stdin.flush()
        wait_for_drafts(tmp_path)
        process.send_signal(number)
        assert process.wait(timeout=60) == code, process.stderr.read()
        assert process.stderr.read() == ""
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_has_left_goes_with_the_next_write(translator: Path, tmp_path: Path) -> None:
    output, theirs = tmp_path / "out.txt", tmp_path / ".out.txt-original"
    theirs.write_text("a hidden file that looks almost like ours")
    with (
        begun("translate", translator, "--output", output) as killed,
        begun("translate", translator, "--output", output) as going,
    ):
        wait_for_drafts(tmp_path, 2)
        killed.kill()
        killed.wait(timeout=60)
        assert regard("translate", translator, "--output", output, stdin="w4\n").code == 0
        assert output.read_text()
        assert len(drafts(tmp_path)) == 1  # of the one that is still writing
        assert going.stdin is not None
        going.stdin.close()
        assert going.wait(timeout=60) == 0
    assert sorted(tmp_path.iterdir()) == [theirs, output]


def drafts(folder: Path) -> list[Path]:
    return list(folder.glob(".out.txt-*.tmp"))


def wait_for_drafts(folder: Path, count: int = 1) -> None:
    """Until so many processes have begun to write."""
    until = time.monotonic() + 60
    while len(drafts(folder)) < count:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_name_that_ends_in_gz_is_compressed(translator: Path, tmp_path: Path) -> None:
    plain, packed = tmp_path / "out.txt", tmp_path / "out.txt.gz"
    for output in (plain, packed):
        assert regard("translate", translator, "--output", output, stdin="\n".join(LINES)).code == 0
    with gzip.open(packed, "rt") as file:
        assert file.read() == plain.read_text()
    assert regard("translate", translator, "--input", packed).code == 0
    empty = tmp_path / "empty.gz"
    assert regard("translate", translator, "--output", empty, stdin="").code == 0
    assert gzip.decompress(empty.read_bytes()) == b""


def test_memory_stays_bounded_on_long_input(translator: Path) -> None:
    """Ten times the lines take no more memory."""
    peaks = []
    for lines in (4_000, 40_000):
        process = os.fork()
        if process == 0:
            command_line.regard("translate", translator, "--beam", "1", "--max-length", "2", given="w4\n" * lines)
            os._exit(min(255, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 4096))
        peaks.append(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
    assert peaks[1] <= peaks[0] + 8  # in units of 4 MiB


def test_long_sentences_are_split_and_counted(translator: Path) -> None:
    done = regard("translate", translator, "--max-source-length", "4", stdin="w4 w5 w6, w7 w8 w9 w10\n")
    assert done.out.count("\n") == 1
    assert done.err == "regard: sentences that were too long were translated in 2 parts.\n"


def test_json_tells_everything(translator: Path) -> None:
    done = regard("translate", translator, "--json", "--n-best", "2", stdin="w4 w5\n\n")
    first, second = (json.loads(line) for line in done.out.splitlines())
    assert second == {"source": "", "translation": "", "sentences": []}
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


def test_the_n_best_are_numbered(translator: Path) -> None:
    done = regard("translate", translator, "--n-best", "2", stdin="w4 w5\n\nw6\n")
    rows = [line.split(" ||| ") for line in done.out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "3", "3"]
    assert float(rows[0][2]) >= float(rows[1][2])


def test_models_vote(translator: Path, tmp_path: Path) -> None:
    saved(tmp_path / "other", EncoderDecoderConfig(**SMALL), seed=1)
    votes: list[list[str | Path]] = [[], ["--ensemble", translator], ["--ensemble", tmp_path / "other"]]
    alone, same, mixed = (
        regard("translate", translator, "--engine", "torch", *more, stdin="w4 w5\nw9 w10 w11\n").out for more in votes
    )
    assert alone == same != mixed


def test_verbose_says_which_engine_and_why(translator: Path) -> None:
    done = command_line.regard("translate", translator, "-v", "--prefix", "w9", given="w4\n")
    assert done.stderr == "regard: engine: torch, because translations are to begin in a given way.\n"
    assert done.stdout.startswith("w9")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--engine", "torhc"], "--engine torhc: should be auto, torch or ctranslate2 (did you mean torch?)."),
        (["--precision", "int4"], "--precision int4: should be int8 or float32 (did you mean int8?)."),
        (["--beam", "0"], "beam is 0; it should be 1 (greedy) to 1,000."),
        (["--n-best", "9"], "n_best is 9, but a beam of 4 gives at most 4; raise it."),
    ],
)
def test_wrong_options_get_a_sentence(translator: Path, arguments: list[str], sentence: str) -> None:
    done = regard("translate", translator, *arguments, stdin="w4\n")
    assert (done.code, done.err) == (2, f"regard: {sentence}\n")


def test_missing_things_get_a_sentence(translator: Path, tmp_path: Path) -> None:
    missing = tmp_path / "none"
    done = regard("translate", missing, stdin="w4\n")
    assert (done.code, done.err) == (
        3,
        f"regard: {missing}: is not a folder; give the path of a model folder, or of a run.\n",
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

    def test_a_prompt_is_continued_and_a_seed_repeats_it(self, writer: Path) -> None:
        first, again, other = (
            regard("generate", writer, "--prompt", "w4 w5", "--max-length", "9", "--seed", seed) for seed in "112"
        )
        assert first.out.startswith("w4 w5")
        assert first.out == again.out != other.out
        assert first.err == ""

    def test_a_stream_prints_the_same(self, writer: Path) -> None:
        whole, streamed = (
            regard("generate", writer, "--prompt", "w4 w5", "--max-length", "9", "--seed", "1", *more).out
            for more in ([], ["--stream"])
        )
        assert whole == streamed

    def test_standard_input_is_a_prompt_too(self, writer: Path) -> None:
        given = regard("generate", writer, "--max-length", "5", "--seed", "1", stdin="w4 w5\n").out
        assert given == regard("generate", writer, "--max-length", "5", "--seed", "1", "--prompt", "w4 w5").out

    def test_several_prompts_and_samples_as_json(self, writer: Path) -> None:
        done = regard(
            *("generate", writer, "--prompt", "w4", "--prompt", "w5 w6", "--samples", "2"),
            *("--max-length", "4", "--json", "--seed", "7"),
        )
        found = [json.loads(line) for line in done.out.splitlines()]
        assert [(one["prompt"], one["sample"]) for one in found] == [("w4", 0), ("w4", 1), ("w5 w6", 0), ("w5 w6", 1)]
        assert all(len(one["tokens"]) <= 4 for one in found)

    def test_without_a_seed_it_draws_anew(self, writer: Path) -> None:
        texts = {regard("generate", writer, "--prompt", "w4", "--max-length", "12").out for _ in range(4)}
        assert len(texts) > 1

    def test_a_text_that_outgrows_the_window_says_so(self, writer: Path) -> None:
        done = regard(
            "generate", writer, "--prompt", "w4 " * 30, "--max-length", "30", "--min-length", "30", "--temperature", "0"
        )
        assert done.code == 0
        assert done.err == "regard: the text exceeded the model's context; its beginning was dropped.\n"

    def test_input_that_is_not_utf8_gets_a_sentence(self, writer: Path) -> None:
        done = regard("generate", writer, stdin=b"w4 \xff")
        assert (done.code, done.err) == (3, "regard: standard input: not UTF-8 (byte 4); convert it.\n")

    def test_on_a_terminal_it_takes_turns(self, writer: Path) -> None:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*COMMAND, "generate", str(writer), "--max-length", "4", "--seed", "1"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=ENVIRONMENT | {"TERM": "dumb"},
        )
        os.close(theirs)
        seen = ""

        def said(wanted: str, count: int) -> None:
            nonlocal seen
            while seen.count(wanted) < count:
                seen += os.read(ours, 1000).decode()

        for turn, line in enumerate(["w4", "", "/new", "w4"], start=1):
            said("> ", turn)
            os.write(ours, f"{line}\n".encode())
        said("> ", 5)
        os.write(ours, b"\x04")
        assert process.wait(timeout=60) == 0
        os.close(ours)
        answers = [part.split("\r\n", 2)[1] for part in seen.split("> ")[1:] if "\r\n" in part]
        assert "Ctrl-D" in seen
        assert answers[0] == answers[3] != answers[1]  # the second goes on from the first; /new forgets both
