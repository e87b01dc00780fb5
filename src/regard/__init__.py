"""regard: train, run and open up the Transformer of "Attention Is All You Need" and the systems around it.

    network = regard.build(regard.load_config("tiny").model)     # a fresh network from a preset
    run = regard.train(config, "runs/en-it")                  # a trained one, in a run folder
    model = regard.load("runs/en-it/best")                   # a trained one from its folder

Names are imported when they are first used, so that `import regard` is instant.
"""

from typing import TYPE_CHECKING

from regard.lazy import lazily
from regard.version import __version__

if TYPE_CHECKING:
    from regard.api import Model, load
    from regard.config import Config, load_config
    from regard.errors import RegardError
    from regard.models import Network, build, save
    from regard.nn import open_taps
    from regard.training.runner import train

__all__ = [
    "Config",
    "Model",
    "Network",
    "RegardError",
    "__version__",
    "build",
    "load",
    "load_config",
    "open_taps",
    "save",
    "train",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "Config": "regard.config",
        "Model": "regard.api",
        "Network": "regard.models",
        "RegardError": "regard.errors",
        "build": "regard.models",
        "load": "regard.api",
        "open_taps": "regard.nn",
        "load_config": "regard.config",
        "save": "regard.models",
        "train": "regard.training.runner",
    },
)
