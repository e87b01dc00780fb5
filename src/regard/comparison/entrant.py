"""Who takes part in a comparison: settings to train, a run that is there already, or a model by itself."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.config import Source, check, gather, preset_names
from regard.config.complaint import nearest
from regard.errors import ConfigError
from regard.models.contents import CONFIG, model_folder
from regard.training.display import Display
from regard.training.run import Run
from regard.training.settle import Order, config_of
from regard.training.start import carry_out


@dataclass(frozen=True)
class Entrant:
    """A name for the table, the model, and the run that it comes from, if that is known."""

    name: str
    model: Path
    run: Path | None = None


def entrants(given: Sequence[str], sets: Sequence[str], out: Path, display: Display) -> list[Entrant]:
    """Everyone, in the order given; settings are trained in folders below `out`, or gone on with where they stopped.

    All that is given is looked at before anything is trained.
    """
    names = _names(given)
    trained = {name: gather(_settings(what), sets) for name, what in names.items() if not Path(what).is_dir()}
    found = []
    for name, what in names.items():
        if name in trained:
            folder = out / name
            if not _is_done(Run(folder), trained[name]):
                display.note(f"{name}:")
                carry_out(Order(trained[name], folder, resume=True, command=["regard", "compare", *given]), display)
            found.append(Entrant(name, model_folder(folder), folder))
        else:
            folder = Path(what)
            found.append(Entrant(name, model_folder(folder), None if (folder / CONFIG).exists() else folder))
    return found


def _is_done(run: Run, sources: Sequence[Source]) -> bool:
    """Whether a run has come to its end with these settings."""
    if not run.exists or run.read_about().get("status") not in ("finished", "early stopped"):
        return False
    own = Source(str(run.config), tomllib.loads(run.config.read_text("utf-8")))
    return check([own, *sources]) == config_of(run)


def _names(given: Sequence[str]) -> dict[str, str]:
    """What was given, by a short name of its own."""
    names: dict[str, str] = {}
    for what in given:
        path = Path(what)
        name = path.stem if path.suffix == ".toml" else path.resolve().name if path.is_dir() else what
        if name in names:
            raise ConfigError(f"{names[name]} and {what}: would both be called {name!r} in the table; rename one.")
        names[name] = what
    return names


def _settings(what: str) -> str | Path:
    """A TOML file, or the name of a preset."""
    if what in preset_names():
        return what
    if what.endswith(".toml") or Path(what).is_file():
        return Path(what)
    raise ConfigError(
        f"{what!r} is nothing to compare{nearest(what, preset_names())}; give TOML files, presets or runs' folders."
    )
