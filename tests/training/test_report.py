"""The report of a run: its sections, escaping, and run folders with missing or damaged files."""

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regard.errors import ModelError
from regard.training.report import mark_differences, page, write_report
from regard.training.report.curves import linear, logarithmic, thin
from regard.training.report.run_log import read_run_log

VOID = {"meta"}


class Page(HTMLParser):
    """Parses a page, and asserts that every element is closed."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(content)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.texts.append(data)

    def elements(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def ids(self) -> list[str | None]:
        return [attributes["id"] for attributes in self.elements("section")]


FIELDS = ["step", "loss", "cross_entropy", "learning_rate", "valid", "grad_norm", "epoch"]


def training(step: int, **more: Any) -> dict[str, Any]:
    nll = 1 + 6 * math.exp(-step / 800)
    line = {
        "step": step,
        "epoch": step / 400,
        "loss": nll + 0.6,
        "cross_entropy": nll,
        "learning_rate": 3e-4,
        "grad_norm": 1.3,
    }
    return (
        line | {"tokens": 4096 * step, "tokens_per_second": 9800.0, "utilization": 0.71, "seconds": 0.4 * step} | more
    )


def validation(step: int, **scores: float) -> dict[str, Any]:
    return {"step": step, "epoch": step / 400, "seconds": 0.4 * step, "valid": scores}


INFO: dict[str, Any] = {
    "name": "en-it",
    "command": ["regard", "train", "translation", "--source", "my train.en", "--out", "runs/en-it"],
    "started": "2026-11-15T23:20:00+00:00",
    "finished": None,
    "status": "early stopped",
    "task": "translation",
    "parameters": 2431232,
    "environment": {"regard": "0.1.0", "torch": "2.13.0", "threads": 2, "matmul_gflops": 140.2},
    "data": {"train": {"read": 29000, "kept": 28950, "too long": 30, "empty": 20}, "valid": {"read": 9, "kept": 9}},
    "automatic_settings": [{"setting": "model.vocab_size", "value": "8000", "reason": "suits the data."}],
    "signatures": {"bleu": "nrefs:1|case:mixed|tok:13a", "chrf": "nrefs:1|nc:6"},
    "results": {
        "best": {"step": 1000, "loss": 1.2, "perplexity": 3.3, "bleu": 40.1, "chrf": 60.2},
        "test": {"sentences": 1000, "loss": 1.3, "perplexity": 3.7, "bleu": 38.7, "chrf": 59.1, "exact": 0.61},
    },
}


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A translation run with all files."""
    lines = [training(step) for step in range(50, 1501, 50)]
    lines += [validation(step, loss=2 - step / 2000, perplexity=3.1, bleu=step / 40, chrf=50.0) for step in (500, 1000)]
    write_lines(tmp_path / "metrics.jsonl", lines)
    (tmp_path / "run.json").write_text(json.dumps(INFO), "utf-8")
    (tmp_path / "config.toml").write_text('[model]\nlayers = 3  # --set\nname = "a # b"\n', "utf-8")
    sample = {"source": "a man walks", "reference": "un uomo cammina"}
    outputs = ["il il", "un uomo", "un uomo", "un uomo cammina"]
    write_lines(
        tmp_path / "samples.jsonl", [sample | {"step": 500 * n, "output": text} for n, text in enumerate(outputs, 1)]
    )
    output = sample | {"output": "un uomo corre", "score": 71.23}
    (tmp_path / "outputs.json").write_text(json.dumps({"best": [output], "worst": [output], "random": [output] * 5}))
    return tmp_path


def test_the_report_has_all_sections(run: Path) -> None:
    report = write_report(run)
    assert report == run / "report.html"
    parsed = Page(report.read_text("utf-8"))
    assert parsed.ids() == [
        "scores", "curves", "outputs", "changes", "data", "automatic-settings", "settings", "environment", "command",
    ]  # fmt: skip
    for words in (
        "Training report · translation en-it early stopped",
        "2,431,232 parameters · 1,500 steps · 3.8 epochs · trained 10 min · 15 November 2026, 23:20 UTC",
        "BLEU 38.7 chrF 59.1 perplexity 3.70 exact match 61% On the test set, 1,000 sentences.",
        "validation, best model (step 1,000) 40.1 60.2 3.30 – 1.200",
        "BLEU nrefs:1|case:mixed|tok:13a",
        "best: step 1,000",
        "Random source a man walks reference un uomo cammina output un uomo corre chrF 71.2",
        "2 more",
        "step 500 il il step 1,000 – 1,500 un uomo step 2,000 un uomo cammina reference un uomo cammina",
        "read kept kept, % too long empty train 29,000 28,950 99.8% 30 20 valid 9 9 100% 0 0",
        "model.vocab_size 8000 suits the data.",
        "matmul peak, GFLOP/s 140.2",
        "regard train translation --source 'my train.en' --out runs/en-it",
    ):
        assert words in parsed.text


def test_every_curve_has_a_chart_with_a_description(run: Path) -> None:
    labels = [svg["aria-label"] or "" for svg in Page(page(read_run_log(run))).elements("svg")]
    titles = ["Loss", "BLEU and chrF", "Learning rate", "Throughput", "Utilization", "Gradient norm"]
    assert [label.partition(":")[0] for label in labels] == titles
    assert labels[1] == "BLEU and chrF: BLEU from 12.5 to 25; chrF from 50 to 50, at step 1,000"


def test_a_language_model_has_prompts_and_bits_per_byte(tmp_path: Path) -> None:
    write_lines(tmp_path / "metrics.jsonl", [training(50), validation(50, loss=2.0, perplexity=7.4, bits_per_byte=1.4)])
    write_lines(tmp_path / "samples.jsonl", [{"step": 50, "prompt": "Once", "output": "upon a time"}])
    parsed = Page(page(read_run_log(tmp_path)))
    assert "bits per byte 1.400 perplexity 7.39" not in parsed.text
    assert "bits per byte 1.400 perplexity 7.40" in parsed.text
    assert "prompt Once step 50 upon a time" in parsed.text
    assert "BLEU" not in parsed.text


def test_the_page_loads_no_external_files(run: Path) -> None:
    content = page(read_run_log(run))
    assert not re.search(r"https?://|url\(|@import", content)
    for _, attributes in Page(content).tags:
        assert not {"src", "href", "srcset", "action"} & set(attributes)


def test_user_text_is_escaped(run: Path) -> None:
    evil = "<script>alert(1)</script>\"'&<b \x00\x1b\ud800\u202e"
    info = json.loads(json.dumps(INFO).replace("en-it", "X").replace("8000", "X").replace("nrefs", "X"))
    text = json.dumps(info).replace("X", json.dumps(evil)[1:-1])
    (run / "run.json").write_text(text, "utf-8")
    (run / "config.toml").write_text(evil.encode("utf-8", "replace").decode(), "utf-8")
    sample = {"step": 1, "source": evil, "reference": evil + "!", "output": evil, "score": 1}
    write_lines(run / "samples.jsonl", [sample])
    (run / "outputs.json").write_text(json.dumps({"random": [sample]}))
    content = write_report(run).read_text("utf-8")
    parsed = Page(content)
    assert len(parsed.elements("script")) == 1
    assert not parsed.elements("b ")
    assert parsed.text.count("<script>alert(1)</script>") >= 8
    assert not set("\x00\x1b\ud800") & set(content)


def test_text_direction_follows_the_language(run: Path) -> None:
    sample = {"source": "peace", "reference": "السلام عليكم", "output": "السلام 👩‍👩‍👧"}
    (run / "outputs.json").write_text(json.dumps({"random": [sample]}), "utf-8")
    content = page(read_run_log(run))
    assert '<dd dir="auto">السلام عليكم</dd>' in content
    assert all(attributes.get("dir") == "auto" for attributes in Page(content).elements("h1"))


def test_only_metrics_are_required(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"metrics\.jsonl: is missing, so .* is not a run folder\.$"):
        write_report(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("")
    assert Page(write_report(tmp_path).read_text("utf-8")).ids() == []
    write_lines(tmp_path / "metrics.jsonl", [training(50)])
    parsed = Page(write_report(tmp_path).read_text("utf-8"))
    assert parsed.ids() == ["curves"]
    assert tmp_path.name in parsed.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "report.html"]


def test_damaged_run_json_is_reported(run: Path) -> None:
    (run / "run.json").write_text("{")
    with pytest.raises(ModelError, match=r"run\.json: is not valid JSON \(.*\); fix or remove it\.$"):
        write_report(run)


def test_a_truncated_line_is_skipped(run: Path) -> None:
    before = page(read_run_log(run))
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1550, "epoch": 3.9, "lo')
    assert page(read_run_log(run)) == before


def test_repeated_steps_of_a_resumed_run_count_once(tmp_path: Path) -> None:
    lines = [training(step, cross_entropy=9.0) for step in (50, 100, 150)] + [
        training(step, cross_entropy=1.0) for step in (100, 150)
    ]
    write_lines(tmp_path / "metrics.jsonl", lines)
    kept = [(line["step"], line["cross_entropy"]) for line in read_run_log(tmp_path).training]
    assert kept == [(50, 9), (100, 1), (150, 1)]


def test_a_loss_that_is_not_finite_is_mentioned_and_not_drawn(tmp_path: Path) -> None:
    lines = [training(50), training(100, loss=math.nan, cross_entropy=math.inf, grad_norm=None), training(150)]
    write_lines(tmp_path / "metrics.jsonl", lines)
    content = page(read_run_log(tmp_path))
    assert "The training loss was not finite once, first at step 100." in Page(content).text
    assert not re.search(r"nan|inf\b", content.partition("<body>")[2].partition("<script>")[0], re.IGNORECASE)


@pytest.mark.slow
def test_a_long_run_has_a_small_report(run: Path) -> None:
    lines = [training(step) for step in range(1, 100_001)]
    lines += [validation(step, loss=2.0, bleu=30.0, chrf=50.0) for step in range(100, 100_001, 100)]
    write_lines(run / "metrics.jsonl", lines)
    long = "una parola " * 2000
    outputs = [{"source": long, "reference": long, "output": "altra " * 4000, "score": 1.0}] * 50
    (run / "outputs.json").write_text(json.dumps({"best": outputs, "worst": outputs, "random": outputs}))
    report = write_report(run)
    parsed = Page(report.read_text("utf-8"))
    assert report.stat().st_size < 1_000_000
    drawn = [json.loads(path["data-points"] or "") for path in parsed.elements("path") if "data-points" in path]
    assert all(2 <= len(points) <= 600 for points in drawn)
    assert "Validations, every 17th of 1,000" in parsed.text


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400), max_points=st.integers(4, 60))
@example(values=[float(n % 7) for n in range(100)], max_points=10)  # random lists are seldom longer than max_points
def test_thinning_keeps_ends_and_extremes(values: list[float], max_points: int) -> None:
    points = list(enumerate(values))
    kept = thin(points, max_points)
    assert len(kept) <= max(max_points, 4)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert kept == sorted(set(kept))
    assert set(kept) <= set(points)
    assert min(value for _, value in kept) == min(values)
    assert max(value for _, value in kept) == max(values)


@given(low=st.floats(-1e9, 1e9), width=st.floats(0, 1e9))
def test_an_axis_covers_its_values_with_few_ticks(low: float, width: float) -> None:
    scale = linear(low, low + width)
    assert 2 <= len(scale.ticks) <= 8
    assert -1e-6 <= scale(low) <= scale(low + width) <= 1 + 1e-6


@given(low=st.floats(1e-9, 1e3), factor=st.floats(4, 1e12))
def test_a_logarithmic_axis_covers_its_values_with_few_ticks(low: float, factor: float) -> None:
    scale = logarithmic(low, low * factor)
    assert 1 <= len(scale.ticks) <= 12
    assert 0 <= scale(low) < scale(low * factor) <= 1


@pytest.mark.parametrize(
    ("output", "reference", "expected"),
    [
        ("un uomo", "un uomo", "un uomo"),
        ("il il la strada", "la strada", "<mark>il il</mark> la strada"),
        ("un <b>", "un uomo", "un <mark>&lt;b&gt;</mark>"),
        ("我爱她", "我爱你", "我爱<mark>她</mark>"),
        ("", "un uomo", ""),
        ("un uomo", "", "un uomo"),
    ],
)
def test_differences_are_marked(output: str, reference: str, expected: str) -> None:
    assert mark_differences(output, reference) == expected


@given(output=st.text(max_size=40), reference=st.text(max_size=40))
def test_marking_does_not_change_the_text(output: str, reference: str) -> None:
    assert re.sub(r"</?mark>", "", mark_differences(output, reference)) == mark_differences(output, "")


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**120), 10**120) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(INFO)), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(
    info=st.fixed_dictionaries({}, optional=dict.fromkeys(INFO, anything)),
    results=st.dictionaries(
        st.sampled_from(["best", "test", "average"]),
        st.dictionaries(st.sampled_from(["step", "loss", "bleu", "sentences", "exact"]), anything),
    ),
    lines=st.lists(st.dictionaries(st.sampled_from(FIELDS), anything)),
    steps=st.lists(st.integers(-3, 10**7), max_size=5),
    samples=st.lists(st.dictionaries(st.sampled_from(["step", "source", "prompt", "output", "reference"]), anything)),
)
def test_a_report_is_written_for_any_content_of_the_files(
    tmp_path_factory: pytest.TempPathFactory, info: Any, results: Any, lines: Any, steps: Any, samples: Any
) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / "run.json").write_text(json.dumps({"results": results, **info}))
    write_lines(folder / "metrics.jsonl", lines + [training(step) | {"learning_rate": step * 1.0} for step in steps])
    write_lines(folder / "samples.jsonl", [{"step": 5, **sample} for sample in samples])
    (folder / "outputs.json").write_text(json.dumps({"best": samples}))
    Page(write_report(folder).read_text("utf-8"))


@pytest.mark.parametrize(
    ("scores", "unit", "titles"),
    [
        ({"loss": 2.0, "accuracy": 0.5}, "tokens per second", ["Accuracy"]),
        ({"loss": 2.0, "accuracy": 0.5, "macro_f1": 0.4}, "labels per second", ["Accuracy and macro-F1"]),
    ],
    ids=["masked tokens", "labels"],
)
def test_accuracy_has_one_chart_and_throughput_its_unit(
    scores: dict[str, float], unit: str, titles: list[str], tmp_path: Path
) -> None:
    write_lines(tmp_path / "metrics.jsonl", [training(step) for step in (1, 2)] + [validation(2, **scores)])
    content = write_report(tmp_path).read_text("utf-8")
    assert unit in content
    assert [title for title in ("Accuracy", "Accuracy and macro-F1") if f">{title}<" in content] == titles


def test_both_directions_have_their_perplexities(tmp_path: Path) -> None:
    both = {"loss": 2.0, "perplexity": 7.389, "forward_perplexity": 7.111, "backward_perplexity": 7.678}
    write_lines(tmp_path / "metrics.jsonl", [training(1), validation(1, **both)])
    content = write_report(tmp_path).read_text("utf-8")
    assert "<dt>forward perplexity</dt><dd>7.11</dd>" in content
    assert "<dt>backward perplexity</dt><dd>7.68</dd>" in content


def test_unknown_scores_of_other_tasks_are_shown(tmp_path: Path) -> None:
    write_lines(tmp_path / "metrics.jsonl", [training(1), validation(1, loss=2.0, word_error_rate=0.25, sentences=9)])
    parsed = Page(write_report(tmp_path).read_text("utf-8"))
    assert "loss 2.000 word error rate 0.250" in parsed.text
    assert "sentences" not in parsed.text
