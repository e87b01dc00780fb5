"""regard: train, run and inspect the Transformer of "Attention Is All You Need" and the systems around it.

    run = regard.train("config.toml", data="pairs.tsv", out="runs/en-it")
    model = regard.load("runs/en-it")
    model.translate("I love you.", beam=8)
    model.look("I love you.").alignment()

Names are imported when they are first used, so that `import regard` is instant.
"""

from typing import TYPE_CHECKING, Any

from regard.errors import explain_missing_packages
from regard.registry import lazy_exports
from regard.version import __version__

if TYPE_CHECKING:
    from regard.api import Model, load
    from regard.config import Config, load_config
    from regard.decoding.results import (
        Alternative,
        Candidate,
        Classification,
        Embeddings,
        FillCandidate,
        FilledText,
        Generation,
        ScoredToken,
        TaggedWord,
        TextScore,
        TranslatedSentence,
        Translation,
    )
    from regard.errors import (
        ArgumentError,
        ConfigError,
        DataError,
        InputError,
        InterruptedRun,
        ModelError,
        RegardError,
        RunError,
    )
    from regard.interpret.trace import Trace
    from regard.models import Network, build, save
    from regard.nn import open_taps
    from regard.training.run import Callback, Run
    from regard.training.runner import train

__all__ = [
    "Alternative",
    "ArgumentError",
    "Callback",
    "Candidate",
    "Classification",
    "Config",
    "ConfigError",
    "DataError",
    "Embeddings",
    "FillCandidate",
    "FilledText",
    "Generation",
    "InputError",
    "InterruptedRun",
    "Model",
    "ModelError",
    "Network",
    "RegardError",
    "Run",
    "RunError",
    "ScoredToken",
    "TaggedWord",
    "TextScore",
    "Trace",
    "TranslatedSentence",
    "Translation",
    "__version__",
    "build",
    "load",
    "load_config",
    "open_taps",
    "save",
    "train",
]

_RESULTS = (
    "Alternative",
    "Candidate",
    "Classification",
    "Embeddings",
    "FillCandidate",
    "FilledText",
    "Generation",
    "ScoredToken",
    "TaggedWord",
    "TextScore",
    "TranslatedSentence",
    "Translation",
)
_ERRORS = (
    "ArgumentError",
    "ConfigError",
    "DataError",
    "InputError",
    "InterruptedRun",
    "ModelError",
    "RegardError",
    "RunError",
)

_import_name, __dir__ = lazy_exports(
    __name__,
    {
        **dict.fromkeys(_RESULTS, "regard.decoding.results"),
        **dict.fromkeys(_ERRORS, "regard.errors"),
        "Callback": "regard.training.run",
        "Config": "regard.config",
        "Model": "regard.api",
        "Network": "regard.models",
        "Run": "regard.training.run",
        "Trace": "regard.interpret.trace",
        "build": "regard.models",
        "load": "regard.api",
        "load_config": "regard.config",
        "open_taps": "regard.nn",
        "save": "regard.models",
        "train": "regard.training.runner",
    },
)


def __getattr__(name: str) -> Any:
    with explain_missing_packages(f"regard.{name}"):
        return _import_name(name)
