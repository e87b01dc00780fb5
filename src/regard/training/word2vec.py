"""Word vectors from text, by gensim's word2vec: skip-gram or CBOW with negative sampling (Mikolov et al. 2013).

The folder holds `vectors.txt` in the standard text format, `config.toml` with every setting, and `run.json`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import ConfigSource, TokenizerConfig, to_toml
from regard.config.word2vec import Word2VecRunConfig
from regard.data.lines import STANDARD_INPUT, InvalidLines
from regard.data.readers import read_documents
from regard.data.stats import ReportProgress
from regard.data.tokenizer import word_splitter
from regard.data.word_vectors import Vector, write_word_vectors
from regard.errors import ConfigError, DataError, RunError
from regard.training.display import ProgressDisplay
from regard.training.run_folder import RunFolder
from regard.training.setup import timestamp
from regard.training.unwritable import unwritable

FILE = "vectors.txt"


@dataclass(frozen=True)
class Learned:
    """Words, the most frequent first, and their vectors (words, width)."""

    words: list[str]
    vectors: Vector
    read: int  # words of text

    def nearest(self, word: str, count: int = 5) -> list[str]:
        """The words whose vectors have about the same direction, the nearest first.

        >>> learned = Learned(["up", "above", "down"], np.array([[1, 0], [2, 1], [-1, 0]], np.float32), 9)
        >>> learned.nearest("up")
        ['above', 'down']
        """
        lengths = np.linalg.norm(self.vectors, axis=1, keepdims=True)
        directions = self.vectors / np.maximum(lengths, 1e-12)
        number = self.words.index(word)
        order = np.argsort(-(directions @ directions[number]), kind="stable")
        return [self.words[n] for n in order.tolist() if n != number][:count]


def train_word2vec(
    config: Word2VecRunConfig,
    out: Path,
    sources: Sequence[ConfigSource] = (),
    display: ProgressDisplay | None = None,
    command: Sequence[str] = (),
) -> Learned:
    """Learn vectors and write them to a folder."""
    display = display or ProgressDisplay()
    _check(config)
    _gensim()  # missing, it is missed before anything is read
    run = RunFolder(out)
    with run.lock():
        if run.exists or (run.folder / FILE).exists():
            raise RunError(f"{run.folder}: holds the result of a training already; choose another --out.")
        run.write(run.config_path.name, to_toml(config, sources))
        started, faults = timestamp(), InvalidLines(config.data.skip_invalid)
        learned = learn(config, faults, lambda what, count: display.counting(what, count, None))
        _write(run.folder / FILE, learned)
        about = {
            "name": run.folder.resolve().name,
            "task": "word2vec",
            "command": list(command),
            "started": started,
            "finished": timestamp(),
            "words": len(learned.words),
            "read": learned.read,
            "skipped": dict(faults.counts),
        }
        run.write_json(run.info_path.name, about)
    for reason, count in faults.counts.items():
        display.note(f"{count:,} skipped: {reason} ({faults.examples[reason].removesuffix('.')}).")
    return learned


def learn(config: Word2VecRunConfig, faults: InvalidLines, report: ReportProgress) -> Learned:
    """The vectors of all words that come often enough."""
    settings = config.word2vec
    text = _Text(config, faults, report)
    model = _gensim()(
        vector_size=settings.width,
        sg=int(settings.method == "skip-gram"),
        window=settings.window,
        negative=settings.negative_samples,
        hs=0,
        min_count=settings.min_count,
        sample=settings.subsample,
        seed=settings.seed,
        workers=settings.threads,
        epochs=settings.epochs,
    )
    model.build_vocab(text)  # in this thread: what is wrong with the text is met here
    words = list(model.wv.index_to_key)
    if not words:
        raise DataError(
            f"{', '.join(config.data.train.file_names)}: has no word that comes {settings.min_count} times; "
            "lower word2vec.min_count, or give more text."
        )
    model.train(text, total_examples=model.corpus_count, epochs=model.epochs)
    return Learned(words, np.asarray(model.wv.vectors, np.float32), int(model.corpus_total_words))


class _Text:
    """The sentences of a text, which can be read again and again: a line is one."""

    def __init__(self, config: Word2VecRunConfig, faults: InvalidLines, report: ReportProgress) -> None:
        settings = config.word2vec
        self._config, self._faults, self._report = config, faults, report
        self._split = word_splitter(TokenizerConfig(kind="word", lowercase=settings.lowercase, nfkc=settings.nfkc))
        self._passes = 0

    def __iter__(self) -> Iterator[list[str]]:
        data, epochs = self._config.data, self._config.word2vec.epochs
        what = f"epoch {self._passes} of {epochs}: reading" if self._passes else "reading"
        faults = InvalidLines(data.skip_invalid) if self._passes else self._faults  # each is counted once
        self._passes += 1
        count = 0
        for document in read_documents(data.train.files, faults):
            for text in document:
                for line in text.split("\n"):
                    if words := self._split(line):
                        count += 1
                        yield words
                        if count % 10_000 == 0:
                            self._report(what, count)


def _check(config: Word2VecRunConfig) -> None:
    train = config.data.train
    if train.source or train.target:
        raise ConfigError("word2vec learns from --data; --source and --target are for translation.")
    if not train.files:
        raise ConfigError("there is nothing to learn from; give --data.")
    if STANDARD_INPUT in train.files:
        raise ConfigError("word2vec reads its text several times, and standard input (-) but once; give a file.")


def _gensim() -> Callable[..., Any]:
    try:
        from gensim.models import Word2Vec
    except ImportError:
        raise ConfigError("word2vec needs gensim; install it with: pip install 'regard[word2vec]'.") from None
    trainer: Callable[..., Any] = Word2Vec
    return trainer


def _write(path: Path, learned: Learned) -> None:
    try:
        write_word_vectors(path, learned.words, learned.vectors)
    except OSError as error:
        raise unwritable(path, error) from None
