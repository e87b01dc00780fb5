"""Multiple-choice tasks: scores by the formula, task files in JSON Lines and YAML, and the harness itself."""

import json
import math
import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from commands import regard
from random_models import saved
from regard.api import Model, load
from regard.api.harness import HarnessModel, harness_model
from regard.config import DecoderOnlyConfig, TokenizerConfig
from regard.data.tokenizer import train_tokenizer
from regard.decoding.scoring import continuation_scores
from regard.errors import DataError, MissingPackageError
from regard.evaluation.harness_task import read_task
from regard.evaluation.likelihood import score_texts
from regard.evaluation.multiple_choice import (
    Question,
    encode_pair,
    evaluate_choices,
    read_questions,
    score_continuations,
    standard_error,
)

PAIRS = [("one two", " three"), ("four", " five six seven"), ("", "eight"), ("two two two ", "one"), ("one", " one")]
TASK = """
task: numbers
dataset_path: json
dataset_kwargs: {data_files: {test: data.jsonl}}
output_type: multiple_choice
test_split: test
doc_to_text: "Q: {{question}}\\n{% if hint %}\\n{{hint}}{% endif %}A:"
doc_to_choice: "{{[wrong, right]}}"
doc_to_target: 1
metric_list: [{metric: acc}]
"""
ENTRY = {"question": "two", "hint": "", "wrong": "one", "right": "three"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("model") / "writer"
    names = ["one", "two", "three", "four", "five", "six", "seven", "eight", "Q:", "A:", "x", "y"]
    tokenizer = train_tokenizer([" ".join(names)] * 3, TokenizerConfig(kind="byte-level"), 300)
    saved(folder, DecoderOnlyConfig(vocab_size=len(tokenizer), width=16, layers=2, heads=2, feed_forward=32))
    (folder / "tokenizer.json").write_bytes(tokenizer.to_json())
    return load(folder)


def log_probabilities(model: Model, ids: list[int]) -> torch.Tensor:
    """The formula: one text, without padding, cache or batches."""
    with torch.no_grad():
        states = model.networks[0].decode(torch.tensor([[model.config.tokens.start, *ids[:-1]]]))
        return model.networks[0].logits(states)[0].double().log_softmax(-1)


def test_continuations_are_scored_by_the_formula(model: Model) -> None:
    for (context, continuation), score in zip(PAIRS, score_continuations(model, PAIRS), strict=True):
        before, after = encode_pair(model.tokenizer, context, continuation)
        rows = log_probabilities(model, [*before, *after])[len(before) :]
        assert score.total == pytest.approx(float(rows[range(len(after)), after].sum()), abs=1e-4)
        assert score.is_greedy == (rows.argmax(-1).tolist() == after)
        assert before + after == model.tokenizer.encode(context + continuation)


def test_a_text_that_is_longer_than_the_window_loses_its_beginning(model: Model) -> None:
    text, continuation = model.tokenizer.encode("one two three four five"), model.tokenizer.encode(" six")
    window = len(continuation) + 2
    (score,) = continuation_scores(model.networks, [(text, continuation)], model.config.tokens, window)
    ids = torch.tensor([[*text, *continuation][-window - 1 : -1]])
    with torch.no_grad():
        rows = model.networks[0].logits(model.networks[0].decode(ids))[0].double().log_softmax(-1)
    expected = rows[-len(continuation) :][range(len(continuation)), continuation].sum()
    assert score.total == pytest.approx(float(expected), abs=1e-4)


def test_accuracies_and_their_errors(model: Model) -> None:
    questions = [Question("one", ("two", "three four five six"), n % 2) for n in range(5)]
    totals = [score.total for score in score_continuations(model, [("one", " two"), ("one", " three four five six")])]
    right = [totals.index(max(totals)) == question.answer for question in questions]
    norms = [totals[0] / len("two"), totals[1] / len("three four five six")]
    right_norm = [norms.index(max(norms)) == question.answer for question in questions]
    result = evaluate_choices(model, questions)
    assert result.acc == statistics.mean(right)
    assert result.acc_norm == statistics.mean(right_norm)
    assert result.scores["acc_stderr"] == pytest.approx(statistics.stdev(right) / math.sqrt(5))
    assert math.isnan(standard_error(1.0, 1))


@pytest.mark.parametrize(
    ("entry", "answer"),
    [
        ({"question": "a", "choices": ["b", "c"], "answer": 1}, 1),
        ({"ctx": "a", "endings": ["b", "c"], "label": "0"}, 0),
        ({"query": "a", "options": ["b", "c"], "gold": "c"}, 1),
        ({"question": "a", "choices": {"text": ["b", "c"], "label": ["A", "B"]}, "answerKey": "B"}, 1),
        ({"question": "a", "choices": {"text": ["b", "c"], "label": ["1", "2"]}, "answerKey": "1"}, 0),
        ({"context": "a", "choices": ["1", "0"], "answer": "0"}, 1),  # a choice, before an index
    ],
)
def test_questions_in_json_lines(entry: dict[str, Any], answer: int, tmp_path: Path) -> None:
    file = tmp_path / "task.jsonl"
    file.write_text(json.dumps(entry) + "\n\n", "utf-8")
    (question,) = read_questions(str(file))
    assert (question.context, len(question.choices), question.answer) == ("a", 2, answer)
    assert read_task(str(file)) == ("task", [question])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "task.jsonl: has no questions"),
        ("{", "task.jsonl:1: is not JSON"),
        ("[1]", "task.jsonl:1: should be an object"),
        ('{"question": "a", "answer": 0}', "task.jsonl:1: has none of the keys choices, endings, options; add one."),
        ('{"question": 3, "choices": ["a", "b"], "answer": 0}', "task.jsonl:1: its context should be a text, not 3"),
        ('{"question": "a", "choices": ["a", ""], "answer": 0}', "task.jsonl:1: its choices should be a list of at"),
        ('{"question": "a", "choices": ["a", "b"], "answer": 2}', "its answer 2 is neither an index from 0 to 1"),
        ('{"question": "a", "choices": ["a", "b"], "answer": true}', "its answer True is neither an index"),
        (
            '{"question": "\\ud800", "choices": ["a", "b"], "answer": 0}',
            "1: is not JSON (a text has the lone surrogate",
        ),
    ],
)
def test_questions_that_cannot_be_asked(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "task.jsonl"
    file.write_text(text + "\n", "utf-8")
    with pytest.raises(DataError) as caught:
        read_questions(str(file))
    assert message in str(caught.value)


def write_task(folder: Path, text: str = TASK, entry: object = None) -> str:
    (folder / "data.jsonl").write_text(json.dumps(entry or ENTRY) + "\n", "utf-8")
    (folder / "task.yaml").write_text(text, "utf-8")
    return str(folder / "task.yaml")


def test_a_task_of_the_harness(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    name, (question,) = read_task(write_task(tmp_path))
    assert name == "numbers"
    assert question == Question("Q: two\nA:", ("one", "three"), 1)
    hint = write_task(tmp_path, TASK + 'target_delimiter: ""\ndescription: "Numbers. "\n', ENTRY | {"hint": "odd"})
    _, (question,) = read_task(hint)
    assert question == Question("Numbers. Q: two\n\noddA:", ("one", "three"), 1, "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("output_type: multiple_choice", "output_type: generate_until"), "is of the type generate_until, not multip"),
        (("task: numbers", "process_docs: !function utils.x"), "functions in Python are not run; use lm_eval"),
        (("task: numbers", "process_docs: x"), "has the key process_docs, which is not supported here"),
        (("task: numbers", "num_fewshot: 3"), "has num_fewshot above 0; set it to 0"),
        (("dataset_path: json", "dataset_path: org/name"), "does not name local data; set dataset_path: json"),
        (("{test: data.jsonl}", "{train: data.jsonl}"), "has no data_files for its split 'test'; add them."),
        (("{{question}}", "{{missing}}"), "data.jsonl:1: doc_to_text of"),
        (("{{question}}", "{{ ''.__class__ }}"), "data.jsonl:1: doc_to_text of"),
        (("{{question}}", "{% for i in range(10**9) %}x{% endfor %}"), "data.jsonl:1: doc_to_text of"),
        (("{{[wrong, right]}}", "{{wrong}}"), "doc_to_choice of"),
        (("doc_to_target: 1", "doc_to_target: 7"), "data.jsonl:1: its answer 7 is neither an index from 0 to 1"),
        (("doc_to_target: 1", "x: ["), "is not YAML that can be read here"),
        (("doc_to_target: 1", "x: &a [1]\ny: *a"), "is not YAML that can be read here (it has an alias"),
        (("doc_to_target: 1\n", ""), "has no doc_to_target; add it."),
    ],
)
def test_tasks_that_cannot_be_read(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    with pytest.raises(DataError) as caught:
        read_task(write_task(tmp_path, TASK.replace(*change)))
    assert message in str(caught.value)


def test_a_task_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    os.mkfifo(tmp_path / "task.yaml")
    with pytest.raises(DataError, match=r"task\.yaml: cannot be read"):
        read_task(str(tmp_path / "task.yaml"))


def test_the_command(model: Model, tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl").write_text('{"question": "one", "choices": ["two", "three"], "answer": 1}\n' * 3, "utf-8")
    done = regard("evaluate", model.folder, "--tasks", tmp_path / "odd.jsonl", "--json", "--quiet")
    assert done.code == 0, done.err
    (task,) = json.loads(done.out)["tasks"]
    assert task == {"task": "odd", **evaluate_choices(model, read_questions(str(tmp_path / "odd.jsonl"))).as_dict()}
    table = regard("evaluate", model.folder, "--tasks", tmp_path / "odd.jsonl", "--quiet")
    assert "acc_norm" in table.out
    both = regard("evaluate", model.folder, "--tasks", tmp_path / "odd.jsonl", "--data", tmp_path / "odd.jsonl")
    assert (both.code, "--tasks: have their own data" in both.err) == (2, True)


@dataclass
class Request:
    args: tuple[object, ...]


def test_the_backend_answers_the_requests_of_the_harness(model: Model) -> None:
    backend = HarnessModel(model)
    scores = backend.loglikelihood([Request(pair) for pair in PAIRS])
    assert scores == [(score.total, score.is_greedy) for score in score_continuations(model, PAIRS)]
    (rolling,) = backend.loglikelihood_rolling([Request(("one two three",))])
    assert rolling == pytest.approx(sum(score_texts(model, ["one two three"])[0].log_probabilities[:-1]))
    options = {"until": ["\n\n"], "max_gen_toks": 5, "do_sample": False, "temperature": 0.0}
    assert backend.generate_until([Request(("one", options))]) == [model.generate("one", max_tokens=5, temperature=0.0)]
    text = model.generate("one", max_tokens=5, temperature=0.0)
    cut = backend.generate_until([Request(("one", {**options, "until": text[1:3]}))])
    assert cut == [text[: text.index(text[1:3])]]


def test_without_the_harness_a_message_says_what_to_do(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lm_eval.api.model", None)
    with pytest.raises(MissingPackageError, match=r"pip install lm_eval, or evaluate local task files"):
        harness_model(model)


@pytest.mark.slow
def test_the_harness_finds_the_same_scores(model: Model, tmp_path: Path) -> None:
    lm_eval = pytest.importorskip("lm_eval")
    from lm_eval.tasks import TaskManager

    draw = np.random.default_rng(1)
    names = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
    entries = [
        {"question": " ".join(draw.choice(names, 3)), "hint": "x" if n % 3 else "", "wrong": str(draw.choice(names)),
         "right": " ".join(draw.choice(names, int(draw.integers(1, 4))))}
        for n in range(40)
    ]  # fmt: skip
    file = write_task(
        tmp_path,
        TASK.replace("data.jsonl", str(tmp_path / "data.jsonl")).replace(
            "metric_list: [{metric: acc}]", "metric_list: [{metric: acc}, {metric: acc_norm}]"
        ),
    )
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries), "utf-8")
    ours = evaluate_choices(model, read_task(file)[1])
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    theirs = lm_eval.simple_evaluate(
        model=harness_model(model), tasks=["numbers"], task_manager=manager, bootstrap_iters=10
    )["results"]["numbers"]
    assert (theirs["acc,none"], theirs["acc_norm,none"]) == (ours.acc, ours.acc_norm)
    errors = [theirs[f"{name}_stderr,none"] for name in ("acc", "acc_norm")]
    assert errors == [pytest.approx(ours.scores[f"{name}_stderr"]) for name in ("acc", "acc_norm")]
