"""`regard demo` with a random network in place of the trained one."""

from pathlib import Path
from unittest.mock import patch

from commands import regard
from random_models import SMALL, saved
from regard.cli.demo import SENTENCES
from regard.config import EncoderDecoderConfig, unchecked_value
from regard.training.run import Run
from regard.training.setup import TrainRequest

COVERAGE = "Everyday phrases. About 12 words."


def test_the_demo_says_what_the_model_covers(tmp_path: Path) -> None:
    requests: list[TrainRequest] = []

    def run_training(request: TrainRequest, *_: object) -> Run:
        requests.append(request)
        saved(request.out / "best", EncoderDecoderConfig(**SMALL))
        return Run(request.out, ["Test: BLEU 96.0"])

    with (
        patch("regard.training.runner.run_training", run_training),
        patch("regard.phrasebook.coverage", return_value=COVERAGE),
    ):
        done = regard("demo", "--out", tmp_path / "demo", "--quiet")
    assert f"\nThe model covers: {COVERAGE}\nOther input is flagged on the page and in " in done.out
    assert all(f"\n  {sentence} " in done.out for sentence in SENTENCES)
    (request,) = requests
    assert unchecked_value(request.sources, "data.description") == COVERAGE
    assert unchecked_value(request.sources, "data.train.files") == ["builtin:phrasebook"]
