"""Models that are loaded for serving: name, languages, abilities, and the calls that worker threads make.

On the command line a model is `folder`, `name=folder` or `name[en-it]=folder`; the name may have a version, as in
`name@v2=folder`. Requests with a name without a version get the default version of that name.
"""

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.api import Model, load
from regard.api.chat import ChatPrompt
from regard.config.errors import did_you_mean
from regard.decoding.generator import Prompt
from regard.decoding.options import GenerationOptions, OutputConstraints, SamplingOptions, TranslationOptions
from regard.decoding.results import Generation, ScoredToken, TextChunk, Translation
from regard.errors import ConfigError
from regard.models.adapter_files import read_adapter
from regard.models.folder_files import resolve_model_folder
from regard.registry import EngineName, Precision
from regard.serving.encoder_jobs import EmbedJob, EncoderJob
from regard.serving.languages import guess_languages
from regard.serving.running_batch import BatchedTexts, FairLock
from regard.training.task import Ability, abilities

if TYPE_CHECKING:  # it imports torch, which a server for CTranslate2 models does without
    from regard.models.folder import SharedWeights

ABILITY_PHRASES: dict[Ability, str] = {
    "translate": "translate",
    "generate": "generate text",
    "classify": "classify texts",
    "tag": "tag words",
    "fill": "fill masks",
    "embed": "embed texts",
}
_ARGUMENT = re.compile(r"(?P<name>[^=\[\]/\\]*)(?:\[(?P<source>[\w-]+?)(?:-|:)(?P<target>[\w-]+)\])?=(?P<folder>.+)")
_NAME = re.compile(r"(?=.{1,100}$)[\w.:-]+(@[\w.:-]+)?")
_NUMBERS = re.compile(r"([0-9]+)")


def describe_abilities(names: Sequence[Ability]) -> str:
    """Return abilities as a phrase.

    >>> describe_abilities(("classify", "embed"))
    'classify texts and embed texts'
    """
    return " and ".join(ABILITY_PHRASES[name] for name in names)


class ServedModelArgument(NamedTuple):
    """Model as the command line names it."""

    name: str
    folder: Path
    languages: tuple[str, str] | None


def parse_model_argument(text: str) -> ServedModelArgument:
    """Parse `folder`, `name=folder` or `name[en-it]=folder`; `[zh-Hans:en]` where a language code has a hyphen.

    >>> parse_model_argument("mine[en-it]=runs/demo")
    ServedModelArgument(name='mine', folder=PosixPath('runs/demo'), languages=('en', 'it'))
    """
    match = None if Path(text).is_dir() else _ARGUMENT.fullmatch(text)
    if match is None and "]=" in text and not Path(text).exists():
        raise ConfigError(f"{text}: put two languages into the brackets, as in mine[en-it]=folder.")
    if match is None:
        return ServedModelArgument(Path(text).resolve().name, Path(text), None)
    folder = Path(match["folder"])
    languages = (match["source"], match["target"]) if match["source"] else None
    return ServedModelArgument(match["name"] or folder.resolve().name, folder, languages)


class LoadedModel:
    """Model with a name and, for a translator, its languages; its methods may be called from several threads."""

    def __init__(
        self,
        name: str,
        model: Model,
        languages: tuple[str, str],
        engine: EngineName = "auto",
        precision: Precision = "int8",
    ) -> None:
        if model.config.model.needs_parses:
            raise ConfigError(
                f"{model.folder}: has syntax positions, which need a parse of every sentence; requests have none, so "
                "it cannot be served. Use regard translate with --parses."
            )
        self.name = name
        self.base_name, _, self.version = name.partition("@")
        """Name without the version, and the version; empty if the model has none."""
        self.model = model
        self.abilities = abilities(model.config)
        self.source_language, self.target_language = languages
        self.engine = engine
        self.precision = precision
        self.torch_lock = FairLock()
        """Held while the PyTorch network runs or is traced, because a trace records every forward pass."""
        self._loading = threading.Lock()
        self._prefix_bytes: int | None = None

    @property
    def translates(self) -> bool:
        """Whether the model is a translator."""
        return "translate" in self.abilities

    @property
    def encodes(self) -> bool:
        """Whether the model is an encoder, which always runs in PyTorch."""
        return "embed" in self.abilities

    def translate(self, texts: Sequence[str], options: TranslationOptions) -> list[Translation]:
        """Translate a batch."""
        with self._loading:
            translator = self.model.translator(options, engine=self.engine, precision=self.precision)
        with self.locked(translator.engine.name):
            return translator.translate(texts, options)

    def run_encoder(self, texts: Sequence[Any], job: EncoderJob) -> list[Any]:
        """Run an encoder job on a batch."""
        with self.torch_lock:
            return job(self.model, texts)

    def generate(
        self, prompts: Sequence[Prompt], options: GenerationOptions, results: list[Generation], seeded: bool
    ) -> Iterable[TextChunk]:
        """Continue prompts chunk by chunk; `results` receives one generation per text before the first chunk.

        With the engine torch it is a `BatchedTexts`, which can join a running batch.
        """
        with self._loading:
            engine = self.model.generation_engine(prompts, options, engine=self.engine, is_seeded=seeded)
            return self._generate(prompts, options, results, engine, seeded)

    def chat(
        self, prompt: ChatPrompt, options: GenerationOptions, results: list[Generation], seeded: bool
    ) -> Iterable[TextChunk]:
        """Answer a conversation, as `generate` continues prompts."""
        with self._loading:
            engine = self.model.chat_engine(prompt, options, self.engine, is_seeded=seeded)
            return self._generate([prompt.ids], prompt.options(options), results, engine, seeded)

    def _generate(
        self,
        prompts: Sequence[Prompt],
        options: GenerationOptions,
        results: list[Generation],
        engine: EngineName,
        seeded: bool,
    ) -> Iterable[TextChunk]:
        if engine == "torch":
            return BatchedTexts(self, self.model.batch_request(prompts, options, results, is_seeded=seeded))
        choices: dict[str, Any] = {"engine": engine, "precision": self.precision, "is_seeded": seeded}
        return self.model.generate_chunks(prompts, options, results, **choices)

    def score_prompts(self, prompts: Sequence[str], candidates: int) -> list[list[ScoredToken]]:
        """Return the log-probability of each token of prompts, with the most probable candidates."""
        with self.locked("torch"):
            return self.model.score_prompts(prompts, top_logprobs=candidates)

    def keep_prefixes(self, max_bytes: int) -> None:
        """Keep what PyTorch computes for the beginnings of prompts, if it may be used."""
        self._prefix_bytes = max_bytes
        if self.engine != "ctranslate2" and find_spec("torch") is not None:
            self.model.keep_prefixes(max_bytes)

    def reload(self) -> None:
        """Load the model again from its folder; requests that have started finish with the old one."""
        languages = (self.source_language, self.target_language)
        model = load(self.model.folder, device=self.model.device)
        model.shared_weights = self.model.shared_weights
        fresh = LoadedModel(self.name, model, languages, self.engine, self.precision)
        if fresh.abilities != self.abilities:
            raise ConfigError(f"{self.model.folder}: has become a model of another kind; restart the server.")
        if self._prefix_bytes is not None:
            fresh.keep_prefixes(self._prefix_bytes)
        fresh.warm_up()
        with self._loading, self.torch_lock:
            self.model = fresh.model

    def warm_up(self) -> None:
        """Load everything that the first request needs."""
        if self.translates:
            self.translate(["."], TranslationOptions(copy_symbols=False))
            return
        if self.encodes:
            self.run_encoder(["."], EmbedJob())
            return
        sampling = SamplingOptions(temperature=0.0, constraints=OutputConstraints(max_tokens=1))
        for _ in self.generate([""], GenerationOptions(sampling), [], True):
            pass

    @contextmanager
    def locked(self, engine: str) -> Iterator[None]:
        """Hold the lock of the PyTorch network if the engine uses it; CTranslate2 needs none."""
        if engine != "torch":
            yield
            return
        with self.torch_lock:
            yield


def load_models(
    arguments: Iterable[str],
    *,
    languages: tuple[str | None, str | None] = (None, None),
    engine: EngineName = "auto",
    precision: Precision = "int8",
    defaults: Sequence[str] = (),
    device: str = "cpu",
) -> list[LoadedModel]:
    """Load the models of a command line.

    `languages` are source and target of translators that name none, `defaults` the names with the default versions.
    """
    parsed = check_arguments(arguments, defaults)
    shared = _shared_weights(parsed)
    models: dict[str, LoadedModel] = {}
    for name, folder, own in parsed:
        model = load(folder, device=device)
        model.shared_weights = shared
        guessed = own or guess_languages(folder)
        pair = own or (languages[0] or guessed[0], languages[1] or guessed[1])
        models[name] = LoadedModel(name, model, pair, engine, precision)
    return order_versions(list(models.values()), defaults)


def _shared_weights(arguments: Sequence[ServedModelArgument]) -> "SharedWeights | None":
    """Return what adapters and their base models share, if there are adapters."""
    if all(read_adapter(resolve_model_folder(argument.folder)) is None for argument in arguments):
        return None
    from regard.models.folder import SharedWeights

    return SharedWeights()


def check_arguments(arguments: Iterable[str], defaults: Sequence[str] = ()) -> list[ServedModelArgument]:
    """Parse the models of a command line, without loading them."""
    parsed: dict[str, ServedModelArgument] = {}
    for text in arguments:
        argument = parse_model_argument(text)
        name, folder = argument.name, argument.folder
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{text}: {name!r} is not a valid model name; choose one, as in en-it={folder}.")
        if name in parsed:
            raise ConfigError(
                f"{text}: there is already a model named {name}; choose another name, as in other={folder}."
            )
        parsed[name] = argument
    bases: dict[str, str] = {}
    for name in defaults:
        if name not in parsed:
            hint = did_you_mean(name, list(parsed))
            raise ConfigError(f"--default {name}: is not one of the models{hint}; pass name@version of one of them.")
        other = bases.setdefault(name.partition("@")[0], name)
        if other != name:
            raise ConfigError(f"--default {name}: {other} is already the default; a name has one default version.")
    return list(parsed.values())


def order_versions(models: Sequence[LoadedModel], defaults: Sequence[str] = ()) -> list[LoadedModel]:
    """Return the models in their order, but all versions of a name together, and its default version first.

    The default version is in `defaults`, or it is the newest: the last one by name, where numbers count as numbers. A
    model without a version comes before the versions of its name.
    """
    names = list(dict.fromkeys(model.base_name for model in models))
    newest = sorted(models, key=lambda model: version_key(model.version), reverse=True)
    newest.sort(key=lambda model: (names.index(model.base_name), model.name not in defaults, model.version != ""))
    return newest


def version_key(version: str) -> tuple[tuple[bool, int, str], ...]:
    """Return the key by which versions are sorted: numbers as numbers, everything else as text.

    >>> sorted(["v10", "v2", "2024-12", "v2.1"], key=version_key)
    ['2024-12', 'v2', 'v2.1', 'v10']
    """
    parts = (part for part in _NUMBERS.split(version) if part)
    return tuple((False, int(part), "") if _NUMBERS.fullmatch(part) else (True, 0, part) for part in parts)
