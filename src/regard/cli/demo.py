"""`regard demo`: a translator from nothing in a few minutes, on the phrasebook that comes with the package."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

SENTENCES = [
    "I love you very much.",
    "Where is the station?",
    "I would like two coffees, please.",
    "She does not see them.",
    "We bought the red car yesterday.",
    "They will eat at the restaurant tomorrow.",
]


def run(
    out: Annotated[Path, typer.Option(help="The run's folder; a demo that was stopped goes on from there.")] = Path(
        "runs/demo"
    ),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing while training.")] = False,
) -> None:
    """Train an English-Italian translator on the built-in phrasebook, test it, and translate with it."""
    from regard.api import load
    from regard.cli.train import print_results
    from regard.config import ConfigSource, load_sources
    from regard.training.display import display_for
    from regard.training.runner import run_training
    from regard.training.setup import TrainRequest

    parts = {"train": "", "valid": "-dev", "test": "-test"}
    files = {part: {"files": [f"builtin:phrasebook{suffix}"]} for part, suffix in parts.items()}
    sources = [*load_sources("phrasebook"), ConfigSource("regard demo", {"data": files})]
    order = TrainRequest(sources, out, resume=True, command=["regard", "demo", "--out", str(out)])
    found = run_training(order, display_for(sys.stderr, quiet))
    print_results(found)
    model = load(found.folder)
    width = max(map(len, SENTENCES))
    print("\nIt translates:")
    for sentence, output in zip(SENTENCES, model.translate(SENTENCES), strict=True):
        print(f"  {sentence.ljust(width)}  {output}")
    folder = shlex.quote(str(found.folder))
    regard = shlex.quote(sys.argv[0]) if sys.argv[0].endswith("/regard") else "regard"
    print("\nNext:")
    print(f"  open {folder}/report.html in a browser: curves, scores, the best and the worst translations")
    print(f"  {regard} look {folder} {shlex.quote(SENTENCES[0])}   every step of a translation, every number in it")
    print(f"  {regard} model {folder}/best               its parts and what they cost")
    print(f"  {regard} train translation --source yours.en --target yours.it --out runs/yours")
    print(f"  {regard} train gpt --data builtin:python-docs --out runs/python-docs")
