"""`regard train`: from files to a trained, evaluated model."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli import word2vec
from regard.cli.input import Files, files, split_files

if TYPE_CHECKING:
    from regard.config import ConfigSource
    from regard.training.run_folder import RunFolder

NETWORKS: dict[str, dict[str, Any]] = {  # by what is to be trained
    "translation": {"kind": "encoder-decoder"},
    "gpt": {"kind": "decoder-only"},
    "elmo": {"kind": "bidirectional-language-model", "head": {"kind": "tokens"}},
    "masked": {"kind": "encoder-only", "head": {"kind": "tokens"}},
    "classify": {"kind": "encoder-only", "head": {"kind": "classes"}},
    "tag": {"kind": "encoder-only", "head": {"kind": "tags"}},
}
TRAINED = (*NETWORKS, "word2vec")


def run(
    what: Annotated[str | None, typer.Argument(help=f"{', '.join(TRAINED)}, or a TOML file.", metavar="WHAT")] = None,
    folder: Annotated[
        Path | None, typer.Argument(help="Where the files are that a TOML file names.", metavar="[FOLDER]")
    ] = None,
    source: Annotated[Files, files("--source", help="Sentences, one a line; may be repeated.")] = None,
    target: Annotated[Files, files("--target", help="Their translations, line by line.")] = None,
    parses: Annotated[Files, files("--parses", help="Parses of the source in CoNLL-U: places in the tree.")] = None,
    data: Annotated[Files, files("--data", help="Pairs as TSV or JSON Lines; text; labelled texts.")] = None,
    valid_source: Annotated[Files, files("--valid-source", help="The same, to measure progress on.")] = None,
    valid_target: Annotated[Files, files("--valid-target", help="…")] = None,
    valid_parses: Annotated[Files, files("--valid-parses", help="…")] = None,
    valid: Annotated[Files, files("--valid", help="… without it, a part of the data is held out.")] = None,
    test_source: Annotated[Files, files("--test-source", help="The same, to measure the result on.")] = None,
    test_target: Annotated[Files, files("--test-target", help="…")] = None,
    test_parses: Annotated[Files, files("--test-parses", help="…")] = None,
    test: Annotated[Files, files("--test", help="…")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/WHAT without it.")] = None,
    start_from: Annotated[
        str | None,
        typer.Option("--from", help="Start from a model: its network, weights and tokenizer.", metavar="MODEL"),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Settings to build on; `regard model` lists them.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting, such as training.steps=5000; may be repeated.")
    ] = None,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Skip and count lines that cannot be used, rather than stop.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, if there is one.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing until the end.")] = False,
) -> None:
    """Train a model on your own text.

    With nothing but data, sizes and lengths are chosen to suit it, and you are told which and why.
    """
    from regard.training.display import display_for
    from regard.training.rank_zero import is_rank_zero, rank_zero_errors
    from regard.training.runner import run_training
    from regard.training.setup import TrainRequest

    with rank_zero_errors():
        given = {
            "train": split_files(source, target, data, "--", parses),
            "valid": split_files(valid_source, valid_target, valid, "--valid-", valid_parses),
            "test": split_files(test_source, test_target, test, "--test-", test_parses),
        }
        parts: dict[str, Any] = {name: corpus for name, corpus in given.items() if corpus}
        if skip_invalid:
            parts["skip_invalid"] = True
        if what == "word2vec":
            others = {
                "--valid": given["valid"],
                "--test": given["test"],
                "--from": start_from,
                "--preset": preset,
                "--resume": resume,
            }
            parts = {name: value for name, value in parts.items() if name in ("train", "skip_invalid")}
            word2vec.run(parts, others, settings or [], out, quiet)
            return
        said = {name: value for name, value in (("data", parts), ("training", _start(start_from))) if value}
        sources = _sources(what, folder, preset, said, settings or [], resume)
        place = _place(what, out)
        wanted = what if what in NETWORKS else None
        request = TrainRequest(sources, place, resume=resume, task=wanted, command=["regard", *sys.argv[1:]])
        finished = run_training(request, display_for(sys.stderr, quiet))
    if is_rank_zero():
        print_results(finished)


def _sources(
    what: str | None, folder: Path | None, preset: str | None, said: dict[str, Any], settings: list[str], resume: bool
) -> "list[ConfigSource]":
    """Where settings come from, the later places to win."""
    from regard.config import ConfigSource, load_sources
    from regard.errors import ConfigError

    sources: list[ConfigSource] = []
    if folder is not None and (what is None or what in TRAINED):
        raise ConfigError(f"{folder}: a folder is for the files that a TOML file names; give data with --data.")
    if what is not None and what in NETWORKS:
        sources = [ConfigSource(f"regard train {what}", {"model": NETWORKS[what]}), *load_sources(preset)]
        said = {**said, "data": _own_splits(what, said.get("data", {}))}
    elif what is not None:
        if preset is not None:
            raise ConfigError(f"--preset {preset}: is for {_listed('and')}; in a file, write preset = {preset!r}.")
        sources = _file(what, folder)
    elif not resume:
        raise ConfigError(f"say what to train: {', '.join(TRAINED)}, or a TOML file.")
    sources += [ConfigSource("the command", said)] if any(said.values()) else []
    return sources + load_sources(None, settings)


def _listed(word: str) -> str:
    *names, last = NETWORKS
    return f"{', '.join(names)} {word} {last}"


def _start(folder: str | None) -> dict[str, Any]:
    return {} if folder is None else {"start_from": folder}


def _place(what: str | None, out: Path | None) -> Path:
    """The run's folder."""
    from regard.errors import ConfigError

    if out is not None:
        return out
    if what is None:
        raise ConfigError("--resume: say which run with --out.")
    return Path("runs") / Path(what).stem


def _own_splits(what: str, parts: dict[str, Any]) -> dict[str, Any]:
    """Embedded corpora bring their own validation and test data."""
    own = {
        "translation": {"builtin:phrasebook": {"valid": "-dev", "test": "-test"}},
        "gpt": {"builtin:python-docs": {"valid": "-dev"}},
        "elmo": {"builtin:python-docs": {"valid": "-dev"}},
        "masked": {"builtin:python-docs": {"valid": "-dev"}},
        "classify": {"builtin:phrasebook-topics": {"valid": "-dev", "test": "-test"}},
    }
    files = parts.get("train", {}).get("files", [])
    for name, suffix in own.get(what, {}).get(files[0], {}).items() if len(files) == 1 else ():
        parts.setdefault(name, {"files": [f"{files[0]}{suffix}"]})
    return parts


def _file(what: str, folder: Path | None) -> "list[ConfigSource]":
    from regard.config import load_sources, preset_names, resolve_paths
    from regard.config.errors import did_you_mean
    from regard.errors import ConfigError

    if not what.endswith(".toml") and not Path(what).is_file():
        hint = " (give it to --preset)" if what in preset_names() else did_you_mean(what, TRAINED)
        raise ConfigError(f"{what!r} is not something to train{hint}; say {', '.join(TRAINED)}, or give a TOML file.")
    sources = load_sources(Path(what))
    return sources if folder is None else [resolve_paths(folder, source) for source in sources]


def print_results(run: "RunFolder") -> None:
    """What came out, and where it is."""
    from regard.training.formatting import score_name, scores_line

    about = run.read_info()
    results = about.get("results", {})
    for name, title in (("best", "Validation"), ("average", "Average of the last weights"), ("test", "Test")):
        if name in results:
            step = f" (step {results[name]['step']:,})" if "step" in results[name] else ""
            scores = {key: value for key, value in results[name].items() if key != "step"}
            print(f"{title}{step}: {scores_line(scores)}")
    for name, signature in about.get("signatures", {}).items():
        print(f"{score_name(name)} signature: {signature}")
    print(f"Model:  {run.folder / 'best'}")
    print(f"Report: {run.folder / 'report.html'}")
