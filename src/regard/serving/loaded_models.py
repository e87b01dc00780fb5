"""A model that is served: its name, its languages, and who carries out what is asked of it.

On the command line it is `folder`, `name=folder` or `name[en-it]=folder`.
"""

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from regard.api import Model, load
from regard.config import ClassHeadConfig, Config, EncoderConfig, TagHeadConfig
from regard.decoding.engines.engine import EngineName, Precision
from regard.decoding.options import GenerationOptions, OutputConstraints, SamplingOptions, TranslationOptions
from regard.decoding.results import Generation, ScoredToken, TextChunk, Translation
from regard.errors import ConfigError
from regard.serving import languages
from regard.serving.encoder_jobs import EmbedJob, EncoderJob

Ability = Literal["translates", "continues", "classifies", "tags", "fills", "embeds"]
ABILITY_PHRASES: dict[Ability, str] = {
    "translates": "translates",
    "continues": "continues text",
    "classifies": "labels texts",
    "tags": "labels words",
    "fills": "fills holes",
    "embeds": "gives vectors",
}


def abilities(config: Config) -> tuple[Ability, ...]:
    """What a model can do, the thing that it was trained for first.

    >>> from regard.config import EncoderOnly
    >>> abilities(Config(model=EncoderOnly(vocabulary=300, head=ClassHead(labels=("bad", "good")))))
    ('classifies', 'embeds')
    """
    model = config.model
    if model.translates:
        return ("translates",)
    if model.generates:
        return ("continues",)
    if not isinstance(model, EncoderConfig):
        return ()
    if isinstance(model.head, ClassHeadConfig):
        return ("classifies", "embeds")
    if isinstance(model.head, TagHeadConfig):
        return ("tags", "embeds")
    if model.task == "masked" and config.tokens.mask is not None:
        return ("fills", "embeds")
    return ("embeds",)


def describe_abilities(some: Sequence[Ability]) -> str:
    """Abilities in a sentence.

    >>> told(("classifies", "embeds"))
    'labels texts and gives vectors'
    """
    return " and ".join(ABILITY_PHRASES[ability] for ability in some)


_WRITTEN = re.compile(r"(?P<name>[^=\[\]/\\]*)(?:\[(?P<source>[\w-]+?)(?:-|:)(?P<target>[\w-]+)\])?=(?P<folder>.+)")
_NAME = re.compile(r"[\w.@:-]{1,100}")


class ModelArgument(NamedTuple):
    """A model as the command line names it."""

    name: str
    folder: Path
    pair: tuple[str, str] | None


def parse_model_argument(text: str) -> ModelArgument:
    """Read `folder`, `name=folder` or `name[en-it]=folder`; `[zh-Hans:en]` where a code has a hyphen.

    >>> parse("mine[en-it]=runs/demo")
    Asked(name='mine', folder=PosixPath('runs/demo'), pair=('en', 'it'))
    """
    match = None if Path(text).is_dir() else _WRITTEN.fullmatch(text)
    if match is None and "]=" in text and not Path(text).exists():
        raise ConfigError(f"{text}: two languages should stand in the brackets, as in mine[en-it]=folder.")
    if match is None:
        return ModelArgument(Path(text).resolve().name, Path(text), None)
    folder = Path(match["folder"])
    pair = (match["source"], match["target"]) if match["source"] else None
    return ModelArgument(match["name"] or folder.resolve().name, folder, pair)


class LoadedModel:
    """A model with a name; for a translator, its languages too."""

    def __init__(
        self, name: str, model: Model, pair: tuple[str, str], engine: EngineName = "auto", precision: Precision = "int8"
    ) -> None:
        kind = model.config.model
        if kind.needs_parses:
            raise ConfigError(
                f"{model.folder}: has syntax positions and reads a parse with every sentence, which no request brings; "
                "it is not served: use regard translate with --parses."
            )
        self.name = name
        self.model = model
        self.source, self.target = pair
        self.engine = engine
        self.precision = precision
        self.torch = threading.Lock()
        """Whoever runs the torch network, or opens its taps, holds this: taps see everything that passes."""
        self._loading = threading.Lock()

    @property
    def does(self) -> tuple[Ability, ...]:
        """What it can be asked for."""
        return abilities(self.model.config)

    @property
    def translates(self) -> bool:
        """Whether it is a translator."""
        return self.model.config.model.translates

    @property
    def encodes(self) -> bool:
        """Whether it is an encoder, which reads and writes nothing; it always runs in torch."""
        return "embeds" in self.does

    def translate(self, texts: Sequence[str], wish: TranslationOptions) -> list[Translation]:
        """Translate texts; may be called from several threads at once."""
        with self._loading:
            ready = self.model.translator(wish, engine=self.engine, precision=self.precision)
        with self.held(ready.engine.name):
            return ready.translate(texts, wish)

    def read(self, texts: Sequence[Any], errand: EncoderJob) -> list[Any]:
        """What an encoder makes of texts; several threads may ask, and take turns."""
        with self.torch:
            return errand(self.model, texts)

    def write(
        self, prompts: Sequence[str], wish: GenerationOptions, into: list[Generation], seeded: bool
    ) -> Iterator[TextChunk]:
        """Go on with prompts, part by part; several threads may do so at once, and take turns at the torch network."""
        with self._loading:
            options: dict[str, Any] = {"engine": self.engine, "seeded": seeded}
            engine = self.model.writing_engine(prompts, wish, **options)
            parts = self.model.stream(prompts, wish, into, precision=self.precision, **options)
        try:
            while True:
                with self.held(engine):
                    part = next(parts, None)
                if part is None:
                    return
                yield part
        finally:
            parts.close()  # type: ignore[attr-defined]  # it is a generator

    def score_prompts(self, prompts: Sequence[str], candidates: int) -> list[list[ScoredToken]]:
        """How probable the tokens of prompts are, and what else is; at the torch network, when it is free."""
        with self.held("torch"):
            return self.model.score_prompts(prompts, candidates)

    def warm_up(self) -> None:
        """Load everything that the first request needs."""
        if self.translates:
            self.translate(["."], TranslationOptions())
            return
        if self.encodes:
            self.read(["."], EmbedJob())
            return
        sampling = SamplingOptions(temperature=0.0, bounds=OutputConstraints(longest=1))
        for _ in self.write([""], GenerationOptions(sampling), [], True):
            pass

    @contextmanager
    def held(self, engine: str) -> Iterator[None]:
        """While it lasts, an engine may run: the torch network for one caller at a time, CTranslate2 for all."""
        if engine != "torch":
            yield
            return
        with self.torch:
            yield


def load_models(
    asked: Iterable[str],
    *,
    pair: tuple[str | None, str | None] = (None, None),
    engine: EngineName = "auto",
    precision: Precision = "int8",
) -> list[LoadedModel]:
    """The models that a command line names; `pair` is the languages of those that say none."""
    found: dict[str, LoadedModel] = {}
    for text in asked:
        name, folder, own = parse_model_argument(text)
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{text}: {name!r} is no name for a model; give one, as in en-it={folder}.")
        if name in found:
            raise ConfigError(f"{text}: there is a model called {name} already; give it another, as in other={folder}.")
        model = load(folder)
        guessed = own or languages.guess(folder)
        languages_ = own or (pair[0] or guessed[0], pair[1] or guessed[1])
        found[name] = LoadedModel(name, model, languages_, engine, precision)
    return list(found.values())
