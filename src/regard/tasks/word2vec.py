"""Word vectors from text, by gensim's word2vec: skip-gram or CBOW with negative sampling (Mikolov et al. 2013).

The folder gets `vectors.txt` in the standard text format, `config.toml` with all settings, and `run.json`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.config import ConfigSource, TokenizerConfig, to_toml, validate_sources
from regard.config.training import Word2VecRunConfig
from regard.data.corpus_scan import ReportProgress, priority
from regard.data.lines import STANDARD_INPUT, InvalidLines
from regard.data.readers import read_documents, read_parts
from regard.data.tokenizer import word_splitter
from regard.data.word_vectors import Vector, write_word_vectors
from regard.errors import ConfigError, DataError, RunError, RunFolderError
from regard.files import write_error_message
from regard.training.display import ProgressDisplay, ResilientDisplay
from regard.training.run import Run
from regard.training.task import Task

if TYPE_CHECKING:
    from regard.training.run import Callback
    from regard.training.setup import TrainRequest

VECTORS_FILE = "vectors.txt"
SHOWN_WORDS = 5  # words whose nearest neighbors are printed


class Word2VecTask(Task):
    """Train word vectors."""

    name = "word2vec"
    title = "word vectors"
    help = "word vectors, from text"
    unsupported_options = ("--valid", "--test", "--from", "--mix", "--preset", "--resume", "--minutes", "--size")

    def train(
        self, request: "TrainRequest", display: ProgressDisplay | None = None, callbacks: "Sequence[Callback]" = ()
    ) -> Run:
        """Train word vectors and write them to a folder; there are no steps for callbacks."""
        config = validate_sources(request.sources, Word2VecRunConfig)
        resilient = ResilientDisplay(display or ProgressDisplay())
        try:
            vectors = train_word2vec(config, request.out, request.sources, resilient, request.command)
        finally:
            resilient.close()
        neighbors = [
            f"near {word}: {' '.join(vectors.nearest(word))}"
            for word in [word for word in vectors.words if word.isalpha()][:SHOWN_WORDS]
        ]
        count = f"{len(vectors.words):,} words of {config.word2vec.width} numbers"
        summary = [
            f"{count}, from {vectors.words_read:,} words of text.",
            *neighbors,
            f"Vectors: {request.out / VECTORS_FILE}",
        ]
        return Run(request.out, summary)


@dataclass(frozen=True)
class TrainedVectors:
    """Words, the most frequent first, and their vectors (words, width)."""

    words: list[str]
    vectors: Vector
    words_read: int  # length of the text

    def nearest(self, word: str, count: int = 5) -> list[str]:
        """The words with the highest cosine similarity.

        >>> trained = TrainedVectors(["up", "above", "down"], np.array([[1, 0], [2, 1], [-1, 0]], np.float32), 9)
        >>> trained.nearest("up")
        ['above', 'down']
        """
        lengths = np.linalg.norm(self.vectors, axis=1, keepdims=True)
        directions = self.vectors / np.maximum(lengths, 1e-12)
        index = self.words.index(word)
        order = np.argsort(-(directions @ directions[index]), kind="stable")
        return [self.words[n] for n in order.tolist() if n != index][:count]


def train_word2vec(
    config: Word2VecRunConfig,
    out: Path,
    sources: Sequence[ConfigSource] = (),
    display: ProgressDisplay | None = None,
    command: Sequence[str] = (),
) -> TrainedVectors:
    """Train vectors and write them to a folder."""
    from regard.training.run_folder import RunFolder
    from regard.training.setup import timestamp

    display = display or ProgressDisplay()
    _check(config)
    _gensim()  # if it is missing, fail before reading the text
    run = RunFolder(out)
    with run.lock(), run.removed_if_start_fails():
        if run.exists or (run.folder / VECTORS_FILE).exists():
            raise RunError(f"{run.folder}: already holds the result of a training run; choose another --out.")
        run.write(run.config_path.name, to_toml(config, sources))
        started, invalid = timestamp(), InvalidLines(config.data.skip_invalid)
        vectors = fit_vectors(config, invalid, lambda what, count: display.count(what, count, None))
        _write(run.folder / VECTORS_FILE, vectors)
        info = {
            "name": run.folder.resolve().name,
            "task": Word2VecTask.name,
            "command": list(command),
            "started": started,
            "finished": timestamp(),
            "words": len(vectors.words),
            "words_read": vectors.words_read,
            "skipped": dict(invalid.counts),
        }
        run.write_json(run.info_path.name, info)
    for note in invalid.notes:
        display.note(f"{note}.")
    for reason, count in invalid.counts.items():
        display.note(f"{count:,} skipped: {reason} ({invalid.examples[reason].removesuffix('.')}).")
    return vectors


def fit_vectors(config: Word2VecRunConfig, invalid: InvalidLines, report: ReportProgress) -> TrainedVectors:
    """Train the vectors of all words that occur often enough."""
    settings = config.word2vec
    text = _Sentences(config, invalid, report)
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
    model.build_vocab(text)  # in this thread, so that errors in the text are raised here
    words = list(model.wv.index_to_key)
    if not words:
        raise DataError(
            f"{', '.join(config.data.train.file_names)}: has no word that occurs {settings.min_count} times; "
            "lower word2vec.min_count, or provide more text."
        )
    model.train(text, total_examples=model.corpus_count, epochs=model.epochs)
    return TrainedVectors(words, np.asarray(model.wv.vectors, np.float32), int(model.corpus_total_words))


class _Sentences:
    """The sentences of a text, one per line; gensim iterates over it once per epoch and once for the vocabulary.

    With weights, sentences are repeated or left out, others in each epoch.
    """

    def __init__(self, config: Word2VecRunConfig, invalid: InvalidLines, report: ReportProgress) -> None:
        settings = config.word2vec
        self._config, self._invalid, self._report = config, invalid, report
        self._split = word_splitter(TokenizerConfig(kind="word", lowercase=settings.lowercase, nfkc=settings.nfkc))
        self._passes = 0

    def __iter__(self) -> Iterator[list[str]]:
        data, epochs = self._config.data, self._config.word2vec.epochs
        what = f"epoch {self._passes} of {epochs}: reading" if self._passes else "reading"
        invalid = InvalidLines(data.skip_invalid) if self._passes else self._invalid  # count each line once
        self._passes += 1
        weights, count = data.train.weights or (1.0,), 0
        draw = priority(priority(self._config.word2vec.seed) + self._passes)
        for part, document in read_parts(data.train, lambda of: read_documents(of.files, invalid, of.columns)):
            whole, fraction = divmod(weights[part], 1)
            for text in document:
                for line in text.split("\n"):
                    if words := self._split(line):
                        count += 1
                        yield from [words] * int(whole + (priority(draw + count) < fraction * 2**64))
                        if count % 10_000 == 0:
                            self._report(what, count)


def _check(config: Word2VecRunConfig) -> None:
    train = config.data.train
    if train.source or train.target:
        raise ConfigError("word2vec is trained on --data; --source and --target are for translation.")
    if not train.files:
        raise ConfigError("there is no training data; pass --data.")
    if STANDARD_INPUT in train.files:
        raise ConfigError(
            "word2vec reads its text several times, but standard input (-) can be read only once; pass a file."
        )


def _gensim() -> Callable[..., Any]:
    try:
        from gensim.models import Word2Vec
    except ImportError:
        raise ConfigError("word2vec needs gensim; install it with: pip install 'regard[word2vec]'.") from None
    trainer: Callable[..., Any] = Word2Vec
    return trainer


def _write(path: Path, vectors: TrainedVectors) -> None:
    try:
        write_word_vectors(path, vectors.words, vectors.vectors)
    except OSError as error:
        raise RunFolderError(write_error_message(path, error, remedy="make it writable")) from None
