"""Batch jobs: formats, shards, manifest, resuming and verification, in one process."""

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import regard
from batch_jobs import in_process, job, manifest, rows_of, texts, write_lines  # noqa: F401  # a fixture
from regard.batch import Embed, Translate, run, verify
from regard.errors import ConfigError, DataError, RunError

pytestmark = pytest.mark.usefixtures("in_process")
TEXTS = texts(25)


@pytest.fixture(scope="module")
def expected(translator: Path) -> list[str]:
    return regard.load(translator, threads=1).translate(TEXTS, max_tokens=4)


@pytest.fixture
def translate(translator: Path) -> Translate:
    return Translate(translator, max_tokens=4)


def test_text_is_divided_into_shards_with_a_manifest(translate: Translate, expected: list[str], tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.en", TEXTS)
    summary = job(translate, [source], tmp_path / "out", rows_per_shard=10)
    assert (summary.rows, summary.processed_rows, summary.shards) == (25, 25, 3)
    assert rows_of(tmp_path / "out") == expected
    content = manifest(tmp_path / "out")
    assert content["complete"] is True
    assert content["inputs"] == [
        {"path": str(source), "rows": 25, "sha256": hashlib.sha256(source.read_bytes()).hexdigest()}
    ]
    ranges = [(shard["name"], shard["first_row"], shard["last_row"]) for shard in content["shards"]]
    assert ranges == [
        ("a-00000-of-00003.en", 1, 10),
        ("a-00001-of-00003.en", 11, 20),
        ("a-00002-of-00003.en", 21, 25),
    ]
    for shard in content["shards"]:
        output = (tmp_path / "out" / "shards" / shard["name"]).read_bytes()
        assert shard["sha256"] == hashlib.sha256(output).hexdigest()
        assert shard["bytes"] == len(output)


@pytest.mark.parametrize("rows_per_shard", [1, 5, 24, 25, 26])
def test_every_row_is_in_one_shard_whatever_the_size(
    translate: Translate, expected: list[str], tmp_path: Path, rows_per_shard: int
) -> None:
    (tmp_path / "a.txt").write_text("\n".join(TEXTS))  # without a line end at the end
    job(translate, [tmp_path / "a.txt"], tmp_path / "out", rows_per_shard=rows_per_shard)
    assert rows_of(tmp_path / "out") == expected


def test_json_lines_keep_their_columns_and_compression(translator: Path, expected: list[str], tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [{"n": n, "en": text, "è": [n, None]} for n, text in enumerate(TEXTS)]
    content = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(content.encode()))
    task = Translate(translator, "en", "it", max_tokens=4)
    job(task, [tmp_path / "a.jsonl.gz"], tmp_path / "out", rows_per_shard=10, id_column="id")
    names = [shard["name"] for shard in manifest(tmp_path / "out")["shards"]]
    assert names[1] == "a-00001-of-00003.jsonl.gz"
    outputs = [gzip.decompress((tmp_path / "out" / "shards" / name).read_bytes()).decode() for name in names]
    assert [json.loads(line) for output in outputs for line in output.splitlines()] == [
        {**record, "id": f"{tmp_path}/a.jsonl.gz:{n}", "it": translation}
        for n, (record, translation) in enumerate(zip(records, expected, strict=True), start=1)
    ]


def test_parquet_keeps_columns_and_types_across_row_groups(
    translator: Path, expected: list[str], tmp_path: Path
) -> None:
    table = pa.table({"n": pa.array(range(25), pa.int16()), "en": TEXTS})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    task = Translate(translator, "en", "it", max_tokens=4)
    job(task, [tmp_path / "a.parquet"], tmp_path / "out", rows_per_shard=10)
    output = pq.read_table(tmp_path / "out" / "shards")
    assert output.schema.field("n").type == pa.int16()
    assert output.to_pydict() == {"n": list(range(25)), "en": TEXTS, "it": expected}
    verify(tmp_path / "out", merge=tmp_path / "all.parquet")
    assert pq.read_table(tmp_path / "all.parquet") == output


def test_vectors_of_text_are_json_lines_or_parquet(tmp_path: Path, loaded_encoders: dict[str, Any]) -> None:
    source, model = write_lines(tmp_path / "a.txt", TEXTS[:5]), loaded_encoders["vectors"].model
    job(Embed(model.folder), [source], tmp_path / "json")
    job(Embed(model.folder), [source], tmp_path / "table", output_format="parquet")
    lines = [json.loads(line) for line in rows_of(tmp_path / "json")]
    table = pq.read_table(tmp_path / "table" / "shards" / "a.parquet").to_pydict()
    assert table["text"] == [line["text"] for line in lines] == TEXTS[:5]
    for vector, line, row in zip(model.embed(TEXTS[:5]), lines, table["vector"], strict=True):
        assert line["vector"] == pytest.approx(vector.tolist(), rel=1e-5)
        assert row == pytest.approx(vector.tolist(), rel=1e-6)


def test_outputs_are_named_after_their_inputs(translate: Translate, tmp_path: Path) -> None:
    for name in ("x/part.txt", "y/part.txt", "empty.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_lines(tmp_path / name, [] if name == "empty.txt" else ["w4"])
    job(translate, [tmp_path / "x", str(tmp_path / "y/*.txt"), tmp_path / "empty.txt"], tmp_path / "out")
    assert [shard["name"] for shard in manifest(tmp_path / "out")["shards"]] == [
        "x-part.txt",
        "y-part.txt",
        "empty.txt",
    ]
    assert (tmp_path / "out" / "shards" / "empty.txt").read_bytes() == b""


def test_finished_shards_are_not_processed_again(
    translate: Translate, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_lines(tmp_path / "a.txt", TEXTS)
    process, calls = Translate.process, []

    def fail_third(task: Translate, model: Any, batch: list[Any]) -> Any:
        calls.append(batch)
        if len(calls) == 4:  # the first is the check before the job
            raise KeyboardInterrupt
        return process(task, model, batch)

    monkeypatch.setattr(Translate, "process", fail_third)
    with pytest.raises(regard.InterruptedRun, match=r"2 of 3 shards are finished\. Run the same command again"):
        run(translate, [source], tmp_path / "out", rows_per_shard=10)
    assert not (tmp_path / "out" / "manifest.json").exists()
    monkeypatch.setattr(Translate, "process", process)
    summary = job(translate, [source], tmp_path / "out", rows_per_shard=10)
    assert summary.processed_rows == 5
    assert rows_of(tmp_path / "out") == expected


def test_parts_of_a_scheduler_together_write_the_manifest(
    translate: Translate, expected: list[str], tmp_path: Path
) -> None:
    source = write_lines(tmp_path / "a.txt", TEXTS)
    parts = [run(translate, [source], tmp_path / "out", rows_per_shard=4, share=(part, 3)) for part in (3, 1, 2)]
    assert [(part.processed_rows, part.finished_shards, part.complete) for part in parts] == [
        (8, 2, False),
        (9, 5, False),
        (8, 7, True),
    ]
    assert rows_of(tmp_path / "out") == expected
    for share in ((0, 3), (4, 3)):
        with pytest.raises(ConfigError, match=r"should be from 1/3 to 3/3"):
            run(translate, [source], tmp_path / "out", rows_per_shard=4, share=share)


def test_verify_finds_missing_and_changed_shards_and_a_rerun_mends_them(
    translate: Translate, expected: list[str], tmp_path: Path
) -> None:
    source, out = write_lines(tmp_path / "a.txt", TEXTS), tmp_path / "out"
    run(translate, [source], out, rows_per_shard=5, share=(1, 2))
    with pytest.raises(
        RunError, match=r"is not complete: a-00001-of-00005\.txt is missing; a-00003-of-00005\.txt is m"
    ):
        verify(out)
    job(translate, [source], out, rows_per_shard=5)
    (out / "shards" / "a-00002-of-00005.txt").write_text("w4\n" * 5)
    (out / "shards" / "a-00004-of-00005.txt").unlink()
    with pytest.raises(
        RunError, match=r"a-00002-of-00005\.txt was changed after it was written; a-00004-\S+ is missing"
    ):
        verify(out)
    assert job(translate, [source], out, rows_per_shard=5).processed_rows == 10
    verify(out, merge=out.parent / "all.txt")
    assert (tmp_path / "all.txt").read_text().splitlines() == rows_of(out) == expected


def test_invalid_rows_stop_the_job_with_file_and_row(translate: Translate, translator: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"w4\nw5\nw6 \xff\nw7\n")
    with pytest.raises(DataError) as error:
        run(translate, [tmp_path / "a.txt"], tmp_path / "out", rows_per_shard=2)
    assert str(error.value) == (
        f"{tmp_path}/a.txt:3: not UTF-8 (byte 4 of the line is 0xff); convert the file, "
        "or skip such rows with --skip-invalid."
    )
    task = Translate(translator, max_tokens=4, skip_invalid=True)
    summary = job(task, [tmp_path / "a.txt"], tmp_path / "skipped", rows_per_shard=2)
    assert summary.skipped == {"not UTF-8": 1}
    lines = rows_of(tmp_path / "skipped")
    assert lines[2] == ""
    assert lines[3] == regard.load(translator).translate("w7", max_tokens=4)  # rows stay aligned


def test_invalid_rows_of_json_lines_have_their_error_in_a_column(translator: Path, tmp_path: Path) -> None:
    lines = ['{"en": "w4"}', '{"it": "w5", "n": 2}', "w6", "[1]", '{"en": null}', '{"en": 7, "x": "\\ud800"}']
    task = Translate(translator, "en", "fr", max_tokens=4, skip_invalid=True)
    summary = job(task, [write_lines(tmp_path / "a.jsonl", lines)], tmp_path / "out")
    assert summary.skipped == {"missing column": 1, "not JSON": 2, "no text": 1, "not a text": 1}
    records = [json.loads(line) for line in rows_of(tmp_path / "out")]
    assert [record["error"] for record in records] == [
        None,
        "no column 'en'; it has it, n",
        "not JSON (Expecting value: line 1 column 1 (char 0)); fix it",
        "not a JSON object; write {…} with named columns",
        "no text in the column 'en'; fill it in",
        "the column 'en' has a value of type int, not a text; convert it",
    ]
    assert [record["fr"] is None for record in records] == [False, True, True, True, True, True]
    assert records[5]["x"] == "\ud800"
    with pytest.raises(DataError, match=r"a\.jsonl:2: no column 'en'; it has it, n, or skip such rows"):
        run(Translate(translator, "en", "fr", max_tokens=4), [tmp_path / "a.jsonl"], tmp_path / "stopped")


def test_a_job_continues_only_with_the_same_settings_and_inputs(
    translate: Translate, translator: Path, tmp_path: Path
) -> None:
    source, out = write_lines(tmp_path / "a.txt", TEXTS), tmp_path / "out"
    job(translate, [source], out)
    with pytest.raises(ConfigError, match=r"was started with task\.options\.max_tokens = 4, not 5; use the same"):
        run(Translate(translator, max_tokens=5), [source], out)
    with pytest.raises(ConfigError, match=r"was started with rows_per_shard = 50000, not 7"):
        run(translate, [source], out, rows_per_shard=7)
    write_lines(source, TEXTS[1:])
    with pytest.raises(DataError, match=r"a\.txt: has changed since the job in \S+ was started; restore it"):
        run(translate, [source], out)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with pytest.raises(ConfigError, match=r"other: has other files, such as notes\.txt; pass a new folder"):
        run(translate, [source], tmp_path / "other")


def test_wrong_inputs_are_explained(translator: Path, translate: Translate, tmp_path: Path) -> None:
    pq.write_table(pa.table({"en": ["w4"], "translation": ["x"]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    write_lines(tmp_path / "a.csv", ["w4,w5"])
    write_lines(tmp_path / "a.jsonl", ['{"text": "w4", "translation": "x"}'])
    (tmp_path / "empty").mkdir()
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (["missing.txt"], {}, "missing.txt: not found; check the path."),
        (["a.parquet"], {}, "has no column 'text'; its columns are en, translation."),
        (["b.parquet"], {}, "b.parquet: is a damaged Parquet file"),
        (["a.csv"], {}, "batch jobs do not read .csv files; convert it to JSON Lines or Parquet"),
        (["a.jsonl"], {}, "a.jsonl:1: has the column 'translation' already; choose another name"),
        (["a.jsonl"], {"output_format": "parquet"}, "is JSON Lines, whose columns have no types"),
        (["a.jsonl", "a.jsonl"], {}, "is passed twice, so that its rows would be processed twice"),
        (["empty"], {}, "empty: is a folder without files; pass another."),
        (["*.xyz"], {}, "matches no file"),
        (["a.jsonl"], {"cluster": "slurm"}, "cluster slurm: should be local or ray."),
        (["a.jsonl"], {"workers": 0}, "workers is 0; it should be 1 or more."),
        (["a.jsonl"], {"rows_per_shard": 0}, "rows_per_shard is 0; it should be 1 or more."),
    ]
    for number, (names, options, message) in enumerate(cases):
        with pytest.raises((DataError, ConfigError)) as error:
            run(translate, [tmp_path / name for name in names], tmp_path / f"out{number}", **options)
        assert message in str(error.value)
    with pytest.raises(ConfigError, match=r"a\.parquet: has the column 'translation' already"):
        run(Translate(translator, "en"), [tmp_path / "a.parquet"], tmp_path / "out")


def test_a_second_process_on_the_same_shards_is_refused(translate: Translate, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.txt", TEXTS)

    def again(*_: object) -> None:
        run(translate, [source], tmp_path / "out")

    with pytest.raises(RunError, match=r"another process works on these shards; wait for it, or stop it"):
        run(translate, [source], tmp_path / "out", on_event=again)


def test_output_in_remote_storage(translate: Translate, expected: list[str], tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.txt", TEXTS)
    for name in ("shards", "records"):
        (tmp_path / "out" / name).mkdir(parents=True)  # object stores have no folders
    summary = run(translate, [f"local://{source}"], f"local://{tmp_path}/out", rows_per_shard=10)
    assert summary.complete
    assert rows_of(tmp_path / "out") == expected
