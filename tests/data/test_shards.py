"""Preparation in shards: equal to the plain path whatever the shards and workers, twice read, resumed after a kill."""

import fcntl
import io
import json
import operator
import os
import pickle
import sys
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from regard.config import Config, load_config
from regard.data import prepare_documents as prepare_documents_module
from regard.data import remote, shards
from regard.data.corpus_scan import SCAN_FILE, TextSample, corpus_scan, discard_scan, pair_stats
from regard.data.data_key import data_key
from regard.data.lines import InvalidLines
from regard.data.preparation import PreparedData, load_or_build_stores
from regard.data.prepare_documents import prepare_documents, store_documents
from regard.data.prepare_labeled import prepare_labeled
from regard.data.prepare_pairs import LengthFilter, PairEncoder, prepare_pairs, store_pairs
from regard.data.readers import read_documents, read_pairs
from regard.data.shards import ShardedBuild, SplitTarget
from regard.data.store import open_store, write_store
from regard.errors import ConfigError, RegardError
from regard.training.setup import TrainRequest

WORDS = ["the", "cat", "sees", "a", "red", "dog", "and", "it", "likes", "fish", "but", "not", "that", "bird"]


def no_report(what: str, count: int) -> None:
    pass


def sentences(count: int, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(1, 9))) for _ in range(count)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    pairs = zip(sentences(300), sentences(300, 1), strict=True)
    path.write_text("".join(f"{n} {a}\t{b}\n" for n, (a, b) in enumerate(pairs)))
    return path


def config(data: Path, *settings: str) -> Config:
    return load_config(None, ["model.vocab_size=300", f"data.train.files={data}", "data.workers=1", *settings])


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def prepare(folder: Path, settings: Config) -> PreparedData:
    return prepare_pairs(folder, "key", settings, no_report)


def test_shards_do_not_change_the_stores(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(tmp_path / "whole", config(data))
    valid = prepared.valid.pairs()
    plain = [pair for pair in read_pairs(config(data).data.train, InvalidLines()) if pair not in valid]
    metadata = {name: prepared.train.store.metadata[name] for name in ("key", "skipped", "examples_of", "notes")}
    store_pairs(tmp_path / "plain", plain, prepared.tokenizer, LengthFilter(256, 3.0), metadata)
    assert content(tmp_path / "plain") == content(tmp_path / "whole" / "train")
    for examples in (7, 100):
        monkeypatch.setattr(shards, "SHARD_EXAMPLES", examples)
        prepare(tmp_path / str(examples), config(data))
        assert content(tmp_path / str(examples)) == content(tmp_path / "whole")


@pytest.mark.slow
def test_workers_do_not_change_the_stores(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path / "one", config(data))
    monkeypatch.setattr(shards, "SHARD_EXAMPLES", 50)
    prepare(tmp_path / "two", config(data, "data.workers=2"))
    assert content(tmp_path / "one") == content(tmp_path / "two")


@pytest.mark.slow
def test_errors_of_workers_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(encoder: Any) -> None:
        job = ShardedBuild(tmp_path / "shards", "key", encoder, {}, lambda text: 1, 2, shard_examples=1)
        job.run([(0, "a"), (0, "b"), (0, "c")], lambda name: {}, lambda count: None)

    with pytest.raises(AttributeError, match="no_such_name"):
        run(operator.attrgetter("no_such_name"))
    monkeypatch.setattr(sys, "executable", "/bin/true")  # as if it was killed
    with pytest.raises(RegardError, match="a process that tokenizes has ended; free some memory"):
        run(operator.attrgetter("no_such_name"))


def test_workers_end_silently_when_the_process_that_started_them_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    encoder, chunk = (pickle.dumps(content, pickle.HIGHEST_PROTOCOL) for content in (len, [["text"] * 100]))
    for request in (b"", encoder[:5], encoder, encoder + chunk[:50]):
        standard_input, results = SimpleNamespace(buffer=io.BytesIO(request)), SimpleNamespace(buffer=io.BytesIO())
        monkeypatch.setattr(sys, "stdin", standard_input)
        monkeypatch.setattr(sys, "stdout", results)
        shards.work()
        assert results.buffer.getvalue() == b""


def test_documents_are_continued_by_the_next_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.data.prepare_documents.PIECE_CHARACTERS", 20)
    for name, lines in (("a", sentences(40)), ("b", []), ("c", sentences(30, 1))):
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
    settings = config(tmp_path / "*.txt", "model.kind=decoder-only", "tokenizer.kind=character")
    whole = prepare_documents(tmp_path / "whole", "key", settings, no_report)
    monkeypatch.setattr(shards, "SHARD_EXAMPLES", 3)
    parts = prepare_documents(tmp_path / "parts", "key", settings, no_report)
    assert content(tmp_path / "whole") == content(tmp_path / "parts")
    documents = read_documents(settings.data.train.files, InvalidLines())
    metadata = {name: whole.train.store.metadata[name] for name in ("key", "skipped", "examples_of", "notes")}
    store_documents(tmp_path / "plain", documents, whole.tokenizer, metadata)
    plain = open_store(tmp_path / "plain")
    assert plain is not None
    stored = open_store(tmp_path / "parts" / "train")
    assert stored is not None
    assert plain.columns[0].ids.tolist() == stored.columns[0].ids.tolist()
    assert plain.columns[0].ends.tolist() == stored.columns[0].ends.tolist()
    assert plain.counts == stored.counts == {"read": 3, "kept": 2, "empty": 1}
    assert len(parts.train.store) > 0


def test_killed_preparation_resumes_after_finished_shards(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path / "whole", config(data))
    monkeypatch.setattr(shards, "SHARD_EXAMPLES", 50)
    encoded: list[int] = []
    encode = PairEncoder.__call__

    def counted(self: PairEncoder, chunk: Any) -> Any:
        encoded.append(len(chunk))
        if len(encoded) == 4:
            raise KeyboardInterrupt
        return encode(self, chunk)

    monkeypatch.setattr(PairEncoder, "__call__", counted)
    folder = tmp_path / "killed"
    with pytest.raises(KeyboardInterrupt):
        prepare(folder, config(data))
    finished = sorted((folder / "shards" / "train").iterdir())
    assert len(finished) == 3
    finished[1].write_bytes(finished[1].read_bytes()[:-1] + b"\0")  # one of them is damaged
    encoded[:] = [0] * 9
    prepare(folder, config(data))
    assert encoded[9:] == [50] * 4  # the damaged shard, and the three that were missing
    assert not (folder / "shards").exists()
    assert content(folder) == content(tmp_path / "whole")


def test_shards_of_other_data_are_not_used(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD_EXAMPLES", 50)
    prepared = prepare(tmp_path / "data", config(data))
    encoder = PairEncoder(prepared.tokenizer, {"train": LengthFilter()}, "train")
    target = {"train": SplitTarget(tmp_path / "store", 2, len(prepared.tokenizer))}
    pairs = [(0, pair) for pair in read_pairs(config(data).data.train, InvalidLines())]
    for key in ("a", "b"):
        job = ShardedBuild(tmp_path / "shards", key, encoder, target, lambda pair: 1, shard_examples=50)
        monkeypatch.setattr("shutil.rmtree", lambda path, ignore_errors: None)  # as after a kill
        assert not any(job._is_finished(n, 50) for n in range(6))
        job.run(iter(pairs), lambda name: {}, lambda count: None)
        assert all(job._is_finished(n, 50) for n in range(6))


def test_processes_that_prepare_the_same_data_wait_for_each_other(data: Path, tmp_path: Path) -> None:
    built: list[str] = []
    errors: list[BaseException] = []
    entered = threading.Event()

    def build(name: str) -> None:
        built.append(name)
        entered.set()
        write_store(tmp_path / "data" / "train", [[[1]]], 1, 10, {"key": "key"})

    def run(name: str) -> None:
        try:
            stores = load_or_build_stores([tmp_path / "data" / "train"], "key", lambda: build(name))
            assert len(stores[0]) == 1
        except BaseException as error:
            errors.append(error)

    (tmp_path / "data").mkdir()
    descriptor = os.open(tmp_path / "data", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # as another process
    threads = [threading.Thread(target=run, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    assert not entered.wait(0.2)
    os.close(descriptor)
    for thread in threads:
        thread.join()
    assert not errors
    assert len(built) == 1


# --- reading twice ----------------------------------------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counts: Counter[str] = Counter()
    open_raw = remote.open_raw

    def counting(file: str) -> Any:
        counts[Path(file).name] += 1
        return open_raw(file)

    monkeypatch.setattr(remote, "open_raw", counting)
    return counts


@pytest.mark.parametrize(
    ("task", "name", "line"),
    [
        ("translation", "data.tsv", "{n} {a}\t{b}\n"),
        ("classify", "data.tsv", "{label}\t{n} {a}\n"),
        ("gpt", "data.txt", "{a}\n"),
        ("tag", "data.conll", "{n} A\nx {tag}\n\n"),
    ],
)
@pytest.mark.parametrize("automatic", [True, False])
def test_training_data_are_read_twice(
    task: str, name: str, line: str, automatic: bool, tmp_path: Path, opened: Counter[str]
) -> None:
    from regard.config import ConfigSource, load_sources
    from regard.training.display import ProgressDisplay
    from regard.training.run_folder import RunFolder
    from regard.training.runner import prepare_run
    from regard.training.setup import config_of, start_run
    from regard.training.shutdown import StopRequest
    from regard.training.task import NetworkTask, get_task

    texts = zip(sentences(200), sentences(200, 1), strict=True)
    (tmp_path / name).write_text(
        "".join(line.format(n=n, a=a, b=b, label="xy"[n % 2], tag="BC"[n % 2]) for n, (a, b) in enumerate(texts))
    )
    definition = get_task(task)
    assert isinstance(definition, NetworkTask)
    settings = ["data.train.files=" + str(tmp_path / name), "data.validation_fraction=0.1"]
    if not automatic:
        settings += ["tokenizer.kind=character"] if task == "gpt" else []
    sources = [ConfigSource("task", definition.default_settings()), *load_sources(None, settings)]
    run, display, stop = RunFolder(tmp_path / "run"), ProgressDisplay(), StopRequest()
    with run.lock():
        start_run(run, TrainRequest(sources, run.folder, task=task if automatic else None), display, stop)
        settings_of_run = config_of(run)
        prepared = prepare_run(run, definition, settings_of_run, run.read_info()["key"], display, stop)
        assert opened[name] == 2
        assert run.read_info()["key"] == data_key(settings_of_run)
        assert len(prepared.train.store) > 0
        opened.clear()
        prepare_run(run, definition, settings_of_run, run.read_info()["key"], display, stop)
        assert not opened
        assert not (run.data / SCAN_FILE).exists()


def test_a_tokenizer_learns_from_the_whole_corpus(tmp_path: Path) -> None:
    sample = TextSample(limit=200)
    sample.extend((f"source {n}", f"target {n}") for n in range(10_000))
    numbers = [int(source.split()[1]) for source, _ in sample]
    assert len(numbers) == 100
    assert numbers == sorted(numbers)
    assert 35 <= sum(number >= 5000 for number in numbers) <= 65  # both halves of the corpus
    again = TextSample(limit=200)
    again.extend((f"source {n}", f"target {n}") for n in range(10_000))
    assert list(again) == list(sample)
    small = TextSample(limit=200)
    small.extend((str(n), "x") for n in range(100))
    assert [source for source, _ in small] == [str(n) for n in range(100)]


def test_a_sample_gives_the_tokenizer_of_the_whole_corpus(data: Path, tmp_path: Path) -> None:
    plain = prepare(tmp_path / "plain", config(data))
    with corpus_scan() as scan, scan.sampling():
        pair_stats(config(data).data.train, False, no_report)
    assert set(scan.digests) == {str(data)}
    scan.save(tmp_path / "scanned", "key")
    scanned = prepare(tmp_path / "scanned", config(data))
    discard_scan(tmp_path / "scanned")
    assert plain.tokenizer.to_json() == scanned.tokenizer.to_json()
    assert content(tmp_path / "plain") == content(tmp_path / "scanned")


# --- weights ----------------------------------------------------------------------------------------------------------


def test_stores_know_their_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, count in enumerate((30, 50)):
        lines = zip(sentences(count, number), sentences(count, 9), strict=True)
        Path(f"{number}.tsv").write_text("".join(f"{n} {a}\t{b}\n" for n, (a, b) in enumerate(lines)))
        Path(f"{number}.en").write_text("a\nb\nc\n")
        Path(f"{number}.it").write_text("d\ne\nf\n")
    monkeypatch.setattr(shards, "SHARD_EXAMPLES", 7)
    files = [
        "data.max_length_ratio=100",
        "data.train.source=['0.en']",
        "data.train.target=['0.it']",
        "data.valid.files=0.tsv",
    ]
    weighted = config(Path("x"), "data.train.files=['[01].tsv', '1.tsv']", *files, "data.train.weights=[1, 0.5, 2]")
    prepared = prepare(tmp_path / "data", weighted)
    assert prepared.train.store.metadata["corpora"] == [3, 80, 50]
    weights = prepared.train.weights(weighted.data.train)
    assert weights is not None
    assert list(weights.ends) == [3, 83, 133, 133]
    assert data_key(weighted) != data_key(config(Path("x"), "data.train.files=['[01].tsv', '1.tsv']", *files))


def test_weights_that_do_not_match_are_an_error(data: Path) -> None:
    with pytest.raises(ConfigError) as error:
        config(data, "data.train.weights=[1.0, 2.0]")
    assert str(error.value) == (
        "--set data.train.weights=[1.0, 2.0]: data.train.weights = [1.0, 2.0] has 2 weights, "
        "but source and files have 1 names: pass one for each."
    )
    with pytest.raises(ConfigError, match=r"data\.train\.weights"):
        config(data, "data.train.weights=[-1.0]")


def test_stores_know_their_corpora_of_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, count in (("a", 30), ("b", 50)):
        Path(f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(count)))
    Path("c.txt").write_text("\n".join(sentences(40)))
    monkeypatch.setattr(shards, "SHARD_EXAMPLES", 7)
    monkeypatch.setattr(prepare_documents_module, "PIECE_CHARACTERS", 60)  # documents continue in the next shard
    settings = config(
        Path("x"),
        "model.kind=decoder-only",
        "tokenizer.kind=character",
        "data.train.files=['a.jsonl', 'c.txt', 'b.jsonl']",
        "data.train.weights=[1, 0.5, 2]",
        "data.validation_fraction=0.25",
    )
    train = prepare_documents(tmp_path / "data", "key", settings, no_report).train
    whole = open_store(tmp_path / "data" / "train")
    assert whole is not None
    assert whole.metadata["corpora"] == [30, 1, 50]
    assert 31 < len(train.store) < 81  # the end is validation data
    weights = train.weights(settings.data.train)
    assert weights is not None
    assert list(weights.ends) == [30, 31, len(train.store), len(train.store)]


def test_labeled_texts_in_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "labeled.tsv"
    path.write_text("".join(f"{'xy'[n % 2]}\t{n} {text}\n" for n, text in enumerate(sentences(100))))
    settings = config(
        path,
        "model.kind=encoder-only",
        "model.head.kind=classes",
        "data.validation_fraction=0.2",
        "tokenizer.kind=word",
    )
    prepared = prepare_labeled(tmp_path / "whole", "key", settings, no_report)
    monkeypatch.setattr(shards, "SHARD_EXAMPLES", 9)
    prepare_labeled(tmp_path / "parts", "key", settings, no_report)
    assert content(tmp_path / "whole") == content(tmp_path / "parts")
    assert prepared.labels == ("x", "y")
    assert len(prepared.train.store) + len(prepared.valid.store) == 100
    lines = (tmp_path / "parts" / "valid.jsonl").read_text().splitlines()
    assert [json.loads(line)["source"] for line in lines] == [pair.source for pair in prepared.valid.pairs()]
