"""regard: train, run and open up the Transformer of "Attention Is All You Need" and the systems around it.

    network = regard.build(regard.resolve("tiny").model)     # a fresh network from a preset
    run = regard.train(config, "runs/en-it")                  # a trained one, in a run folder
    model = regard.load("runs/en-it/best")                   # a trained one from its folder

Names are imported when they are first used, so that `import regard` is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.version import __version__

if TYPE_CHECKING:
    from regard.config import Config, resolve
    from regard.errors import RegardError
    from regard.models import Model, Network, build, load, save
    from regard.nn import open_taps
    from regard.training.start import train

__all__ = [
    "Config",
    "Model",
    "Network",
    "RegardError",
    "__version__",
    "build",
    "load",
    "open_taps",
    "resolve",
    "save",
    "train",
]

_HOMES = {
    "Config": "regard.config",
    "Model": "regard.models",
    "Network": "regard.models",
    "RegardError": "regard.errors",
    "build": "regard.models",
    "load": "regard.models",
    "open_taps": "regard.nn",
    "resolve": "regard.config",
    "save": "regard.models",
    "train": "regard.training.start",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
