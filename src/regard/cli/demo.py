"""`regard demo`: train a translator on the built-in phrasebook in a few minutes."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

from regard.cli.input_output import print_text
from regard.cli.options import OUTPUT_PANEL, QuietOption, examples, option

EXAMPLES = examples("regard demo", "regard demo --out runs/my-demo")
SENTENCES = [
    "I love you very much.",
    "Hi, how are you?",
    "Your cat is a lovely cat.",
    "Where is the station?",
    "I would like two coffees, please.",
    "She does not see them.",
    "We bought the red car yesterday.",
    "They will eat at the restaurant tomorrow.",
]


def run(
    out: Annotated[Path, option(OUTPUT_PANEL, help="Run folder; an interrupted demo resumes from it.")] = Path(
        "runs/demo"
    ),
    quiet: QuietOption = False,
) -> None:
    """Train an English-Italian translator on the built-in phrasebook, test it, and translate a few sentences."""
    from regard.api import load
    from regard.cli.train import print_results
    from regard.config import ConfigSource, load_sources
    from regard.phrasebook import coverage
    from regard.training.display import display_for
    from regard.training.runner import run_training
    from regard.training.setup import TrainRequest

    suffixes = {"train": "", "valid": "-dev", "test": "-test"}
    data: dict[str, object] = {split: {"files": [f"builtin:phrasebook{suffix}"]} for split, suffix in suffixes.items()}
    sources = [
        *load_sources("phrasebook"),
        ConfigSource("regard demo", {"data": data | {"description": coverage()}}),
    ]
    request = TrainRequest(sources, out, resume=True, command=["regard", "demo", "--out", str(out)])
    finished = run_training(request, display_for(sys.stderr, quiet))
    print_results(finished)
    model = load(finished.folder)
    width = max(map(len, SENTENCES))
    print_text("\nTranslations:")
    for sentence, translation in zip(SENTENCES, model.translate(SENTENCES), strict=True):
        print_text(f"  {sentence.ljust(width)}  {translation}")
    print_text(f"\nThe model covers: {coverage()}")
    print_text("Other input is flagged on the page and in the output of regard translate --json.")
    folder = shlex.quote(str(finished.folder))
    regard = shlex.quote(sys.argv[0]) if sys.argv[0].endswith("/regard") else "regard"
    print_text("\nNext steps:")
    print_text(f"  open {folder}/report.html in a browser: curves, scores, best and worst translations")
    print_text(f"  {regard} look {folder} {shlex.quote(SENTENCES[0])}   all steps and values of a translation")
    print_text(f"  {regard} model {folder}/best               parameters, FLOPs and memory of the network")
    print_text(f"  {regard} train translation --source yours.en --target yours.it --out runs/yours")
    print_text(f"  {regard} train gpt --data builtin:python-docs --out runs/python-docs")
