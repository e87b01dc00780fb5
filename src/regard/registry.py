"""Registries of components by name, imported on first use.

A `Registry` maps names to objects. Built-in entries are import paths, which are imported when they are first used, so
that listing names never imports torch, or modules of one package that do not import torch and register themselves.
Third-party packages add entries in one of two ways:

- by an entry point, which is found when the package is installed:

      [project.entry-points."regard.positions"]
      my-scheme = "my_package.positions:MyScheme"

- by a decorator, in a module that is imported with `--plugin my_module` or by the program itself:

      @POSITIONS.register("my-scheme")
      class MyScheme: ...

Choices that plugins cannot add to are `Literal` types here. `lazy_exports` imports the names of a package on first use.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, Literal, TypeVar, cast, get_args

from regard.errors import ConfigError

T = TypeVar("T")

# Names that settings, arguments and options of commands choose from and that plugins cannot add to.
Activation = Literal["relu", "relu2", "gelu", "gelu-tanh", "swish"]
EngineName = Literal["auto", "torch", "ctranslate2"]
ExampleType = Literal["pairs", "documents", "texts", "labeled", "tagged"]  # what data files hold
Pooling = Literal["mean", "first", "first-dense", "first-relu"]
Precision = Literal["int8", "float32"]  # of the weights of CTranslate2
SearchName = Literal["exact", "fast"]  # when beam search stops
TextFormat = Literal["auto", "text", "html"]  # auto: lines of text, some of which have tags

ENGINES: tuple[EngineName, ...] = get_args(EngineName)
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
SEARCHES: tuple[SearchName, ...] = get_args(SearchName)
TEXT_FORMATS: tuple[TextFormat, ...] = get_args(TextFormat)


def usual_spelling(name: str) -> str:
    """Return a name as aliases are written.

    >>> usual_spelling("Loss landscape"), usual_spelling("causal_mask")
    ('loss-landscape', 'causal-mask')
    """
    return "-".join(name.lower().replace("_", " ").replace("-", " ").split())


class Registry(Generic[T]):
    """Components of one kind, by name.

    >>> functions: Registry[Callable[[float], float]] = Registry("functions", {"sqrt": "math:sqrt"})
    >>> functions["sqrt"](9.0)
    3.0
    >>> @functions.register("double")
    ... def double(x: float) -> float:
    ...     return 2 * x
    >>> functions["double"](2.0), functions.names()
    (4.0, ['double', 'sqrt'])
    """

    def __init__(
        self,
        group: str,
        builtins: Mapping[str, str] | None = None,
        *,
        package: str | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        """`builtins` are import paths by name; all modules of `package` are imported before the first lookup.

        `aliases` are other usual names, which the command line accepts too (`resolve`).
        """
        self.group = group
        """What the entries are, in the plural; the entry-point group is `regard.<group>`."""
        self._builtins = frozenset(builtins or ())
        self._paths: dict[str, str] = dict(builtins or {})
        self._package = package
        self.aliases: dict[str, str] = dict(aliases or {})
        self._objects: dict[str, T] = {}
        self._scanned = False

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds an object under this name.

        It has precedence over an entry point of the same name. Those are looked for only when names are listed, or an
        unknown name is looked up, because it takes longer than anything else here.
        """

        def add(component: T) -> T:
            if name in {*self._builtins, *self._objects} and self._objects.get(name) is not component:
                raise ConfigError(f"{name!r} is already registered as one of the {self.group}; choose another name.")
            self._objects[name] = component
            return component

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self:
            from difflib import get_close_matches

            close = get_close_matches(name, self.names(), n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise ConfigError(f"{name!r} is not one of the {self.group}{hint}; available: {', '.join(self.names())}.")
        if name not in self._objects:
            self._objects[name] = self._import(name)
        return self._objects[name]

    def __contains__(self, name: object) -> bool:
        if name in self._objects or name in self._paths:
            return True
        return name in self.names()

    def resolve(self, name: str) -> str:
        """Return the registered name that is meant: in lower case, or by an alias; an unknown name as it is.

        >>> functions: Registry[object] = Registry("functions", {"sqrt": "math:sqrt"}, aliases={"square-root": "sqrt"})
        >>> functions.resolve("Square root"), functions.resolve("SQRT"), functions.resolve("cosine")
        ('sqrt', 'sqrt', 'cosine')
        """
        if name in self:
            return name
        usual = usual_spelling(name)
        return usual if usual in self else self.aliases.get(usual, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> list[str]:
        """All names, sorted; nothing is imported, except the modules of the registry's package."""
        self._scan()
        self._import_package()
        return sorted({*self._paths, *self._objects})

    def items(self) -> Iterator[tuple[str, T]]:
        """All names with their objects, which are imported."""
        return ((name, self[name]) for name in self.names())

    def _scan(self) -> None:
        """Find the entry points of installed packages, once."""
        if not self._scanned:
            self._scanned = True
            from importlib.metadata import entry_points  # takes a while

            for point in entry_points(group=f"regard.{self.group}"):
                self._paths.setdefault(point.name, point.value)

    def _import_package(self) -> None:
        """Import the modules of the package, which register themselves, once."""
        package = self._package
        if package is not None:
            from pkgutil import iter_modules

            for info in iter_modules(import_module(package).__path__):
                import_module(f"{package}.{info.name}")
            self._package = None

    def _import(self, name: str) -> T:
        module, _, attribute = self._paths[name].partition(":")
        try:
            return cast(T, getattr(import_module(module), attribute))
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"{name!r} of the {self.group} cannot be loaded from {self._paths[name]!r}: {error}; "
                "reinstall or remove the package that provides it."
            ) from error


TASK_REGISTRY: Registry[object] = Registry(
    "tasks",
    {
        "translation": "regard.tasks.translation:TranslationTask",
        "gpt": "regard.tasks.language_modeling:LanguageModelingTask",
        "chat": "regard.tasks.chat:ChatTask",
        "dpo": "regard.tasks.dpo:PreferenceTask",
        "elmo": "regard.tasks.bidirectional_lm:BidirectionalLMTask",
        "masked": "regard.tasks.masked_lm:MaskedLMTask",
        "classify": "regard.tasks.classification:ClassificationTask",
        "tag": "regard.tasks.tagging:TaggingTask",
        "word2vec": "regard.tasks.word2vec:Word2VecTask",
    },
    aliases={
        "encoder-decoder": "translation",
        "machine-translation": "translation",
        "nmt": "translation",
        "transformer": "translation",
        "translate": "translation",
        "translator": "translation",
        "causal-lm": "gpt",
        "decoder-only": "gpt",
        "gpt-2": "gpt",
        "gpt2": "gpt",
        "language-model": "gpt",
        "language-modeling": "gpt",
        "llm": "gpt",
        "lm": "gpt",
        "sft": "chat",
        "supervised-fine-tuning": "chat",
        "instruct": "chat",
        "instruction-tuning": "chat",
        "direct-preference-optimization": "dpo",
        "preferences": "dpo",
        "bidirectional-language-model": "elmo",
        "bilm": "elmo",
        "bert": "masked",
        "encoder-only": "masked",
        "masked-language-model": "masked",
        "masked-lm": "masked",
        "mlm": "masked",
        "classification": "classify",
        "classifier": "classify",
        "sentiment": "classify",
        "text-classification": "classify",
        "ner": "tag",
        "pos": "tag",
        "tagger": "tag",
        "tagging": "tag",
        "token-classification": "tag",
        "cbow": "word2vec",
        "skip-gram": "word2vec",
        "skipgram": "word2vec",
        "word-vectors": "word2vec",
        "word-embeddings": "word2vec",
    },
)
"""Classes of `regard.training.task.Task`, by the name in `regard train NAME`; here so that `--help` can list them."""


def lazy_exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package; `modules` has the module that defines each of its names.

    >>> get, names = lazy_exports("example", {"sqrt": "math"})
    >>> get("sqrt")(9.0), names()
    (3.0, ['sqrt'])
    """

    def get(name: str) -> Any:
        if name in modules:
            return getattr(import_module(modules[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted(modules)
