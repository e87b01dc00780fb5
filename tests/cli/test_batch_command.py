"""`regard batch` for every task: options, output and summary, in one process."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import regard
from batch_jobs import in_process, rows_of, texts, write_lines  # noqa: F401  # a fixture
from commands import regard as command

if TYPE_CHECKING:
    from regard.serving.loaded_models import LoadedModel

pytestmark = pytest.mark.usefixtures("in_process")
TEXTS = texts(6)


def test_translate_prints_progress_and_summary(translator: Path, tmp_path: Path) -> None:
    source, out = write_lines(tmp_path / "a.txt", TEXTS), tmp_path / "out"
    options = ("--beam", "2", "--max-tokens", "4", "--rows-per-shard", "4")
    done = command("batch", "translate", translator, source, "--out", out, *options)
    assert (done.code, done.err) == (0, "regard: translate: 0 of 6 rows and 0 of 2 shards are finished.\n")
    assert done.out == f"6 rows in 2 shards, each row once: {out}/shards\nManifest: {out}/manifest.json\n"
    assert rows_of(out) == regard.load(translator).translate(TEXTS, beam=2, max_tokens=4)
    quiet = command("batch", "translate", translator, source, "--out", out, *options, "--quiet", "--json")
    assert quiet.err == ""
    summary = json.loads(quiet.out)
    assert (summary["complete"], summary["rows"], summary["processed_rows"]) == (True, 6, 0)


def test_parts_and_verify(translator: Path, tmp_path: Path) -> None:
    source, out = write_lines(tmp_path / "a.txt", TEXTS), tmp_path / "out"
    start = ("batch", "translate", translator, source, "--out", out, "--max-tokens", "4", "--rows-per-shard", "2")
    first = command(*start, "--shard", "1/2")
    assert first.out == "2 of 3 shards are finished (4 rows); the manifest is written when all are.\n"
    unfinished = command("batch", "verify", out)
    assert unfinished.code == 1
    assert "is not complete: a-00001-of-00003.txt is missing. Run the same command again" in unfinished.err
    assert "Manifest: " in command(*start, "--shard", "2/2").out
    assert command("batch", "verify", out, "--merge", tmp_path / "all.txt").code == 0
    assert (tmp_path / "all.txt").read_text().splitlines() == rows_of(out)


def test_skipped_rows_are_reported(translator: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"w4\n\xff\n")
    start = ("batch", "translate", translator, tmp_path / "a.txt", "--max-tokens", "4")
    done = command(*start, "--out", tmp_path / "out", "--skip-invalid")
    assert done.code == 0
    example = f"{tmp_path}/a.txt:2: not UTF-8 (byte 1 of the line is 0xff); convert the file."
    assert f"regard: 1 rows without a result: not UTF-8. {example}\n" in done.err
    assert command(*start, "--out", tmp_path / "stopped").code == 3


def test_generate_classify_and_embed(writer: Path, loaded_encoders: "dict[str, LoadedModel]", tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.txt", TEXTS)
    options = ("--max-tokens", "3", "--seed", "1", "--stop", "w5")
    assert command("batch", "generate", writer, source, "--out", tmp_path / "generated", *options).code == 0
    expected = regard.load(writer).generate(TEXTS, max_tokens=3, seed=1, stop=["w5"])
    assert [json.loads(line)["continuation"] for line in rows_of(tmp_path / "generated")] == expected

    mood = loaded_encoders["mood"].model
    pairs = write_lines(tmp_path / "pairs.txt", [f"{text}\t{text}" for text in TEXTS])
    done = command("batch", "classify", mood.folder, pairs, "--second-column", "b", "--out", tmp_path / "labels")
    assert done.code == 0, done.err
    assert rows_of(tmp_path / "labels") == mood.classify([(text, text) for text in TEXTS])

    vectors = loaded_encoders["vectors"].model
    pq.write_table(pa.table({"review": TEXTS}), tmp_path / "a.parquet")
    columns = ("--source-column", "review", "--target-column", "v", "--normalize", "--pooling", "mean")
    done = command("batch", "embed", vectors.folder, tmp_path / "a.parquet", "--out", tmp_path / "vectors", *columns)
    assert done.code == 0, done.err
    rows = pq.read_table(tmp_path / "vectors" / "shards" / "a.parquet").to_pydict()["v"]
    for row, vector in zip(rows, vectors.embed(TEXTS, pooling="mean", normalize=True), strict=True):
        assert row == pytest.approx(vector.tolist(), abs=1e-5)


def test_a_model_of_another_type_is_refused_before_anything_is_written(writer: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.txt", TEXTS)
    for task, message in (("translate", "which does not translate"), ("classify", "which does not encode texts")):
        done = command("batch", task, writer, source, "--out", tmp_path / "out")
        assert (done.code, message in done.err) == (2, True), done.err
    assert not (tmp_path / "out").exists()
