"""Commands across all network types: fine-tune, evaluate, compare and trace models that other commands trained."""

import json
from pathlib import Path

import pytest
import torch

import regard as toolkit
from commands import regard
from labeled_runs import negated_sentences, tagged_sentences, write_columns, write_table
from regard.models.folder import read_tensors
from regard.models.recurrent import BidirectionalLanguageModel

pytestmark = pytest.mark.slow

SHORT = ("training.steps=4", "training.batch_tokens=4096", "validation.every=2", "training.threads=1")
SMALL = ("model.width=16", "model.layers=1", "model.vocab_size=280")
HEADS = ("model.heads=2", "model.feed_forward=24")


def sets(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and small models that were trained for a few steps."""
    folder = tmp_path_factory.mktemp("family")
    texts = [text for _, text in negated_sentences(150)]
    (folder / "text.txt").write_text("".join(f"{text}\n" for text in texts[:120]))
    (folder / "valid.txt").write_text("".join(f"{text}\n" for text in texts[120:]))
    (folder / "pairs.tsv").write_text("".join(f"{text}\t{text.upper()}\n" for text in texts))
    write_table(folder / "labels.tsv", negated_sentences(120))
    write_columns(folder / "tags.conll", tagged_sentences(60))
    text: list[str | Path] = ["--data", folder / "text.txt", "--valid", folder / "valid.txt"]
    small = sets(*SHORT, *SMALL)
    runs: list[tuple[str, list[str | Path], list[str]]] = [
        ("elmo", text, []),
        ("masked", text, sets(*HEADS)),
        ("gpt", text, ["--preset", "lstm-lm"]),
        ("classify", ["--data", folder / "labels.tsv"], sets(*HEADS)),
        ("translation", ["--data", folder / "pairs.tsv"], ["--preset", "bahdanau"]),
    ]
    for task, data, more in runs:
        done = regard("train", task, *data, "--out", folder / task, "-q", *more, *small)
        assert done.code == 0, done.err
    return folder


@pytest.mark.parametrize("frozen", [False, True], ids=["whole", "frozen"])
@pytest.mark.parametrize(("task", "data"), [("classify", "labels.tsv"), ("tag", "tags.conll")])
def test_fine_tuning_elmo_trains_the_layer_mixture(
    task: str, data: str, frozen: bool, trained: Path, tmp_path: Path
) -> None:
    more = sets(*SHORT, f"training.freeze_encoder={str(frozen).lower()}", "training.schedule.learning_rate=0.01")
    done = regard("train", task, "--data", trained / data, "--from", trained / "elmo", "--out", tmp_path / "run", *more)
    assert done.code == 0, done.err
    network = toolkit.load(tmp_path / "run").network
    assert isinstance(network, BidirectionalLanguageModel)
    assert network.mixing.scalars.abs().min() > 0
    assert network.mixing.scale.item() != 1.0
    before, after = (read_tensors(run / "best" / "model.safetensors") for run in (trained / "elmo", tmp_path / "run"))
    name = next(name for name in after if name.startswith("encoder.") and name.endswith("weight"))
    assert torch.equal(before[name], after[name]) == frozen


def test_elmo_classifier_from_scratch(trained: Path, tmp_path: Path) -> None:
    kind = sets("model.kind=bidirectional-language-model", *SHORT, *SMALL)
    done = regard("train", "classify", "--data", trained / "labels.tsv", "--out", tmp_path / "run", *kind)
    assert done.code == 0, done.err
    network = toolkit.load(tmp_path / "run").network
    assert isinstance(network, BidirectionalLanguageModel)
    assert network.mixing.scalars.abs().min() > 0
    assert toolkit.load(tmp_path / "run").classify("the cat is not red") in ("negated", "plain")


@pytest.mark.parametrize(("task", "data"), [("gpt", "text.txt"), ("translation", "pairs.tsv")])
def test_fine_tuning_recurrent_networks(task: str, data: str, trained: Path, tmp_path: Path) -> None:
    short = sets(*SHORT)
    done = regard("train", task, "--data", trained / data, "--from", trained / task, "--out", tmp_path / "run", *short)
    assert done.code == 0, done.err
    assert toolkit.load(tmp_path / "run").config.model == toolkit.load(trained / task).config.model


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["classify", "--data", "labels.tsv", "--set", "model.kind=decoder-only"],
            "regard train classify: model.kind = 'decoder-only' is for regard train gpt; use that, or use other "
            "settings.",
        ),
        (
            ["masked", "--data", "text.txt", "--set", "model.kind=bidirectional-language-model"],
            "regard train masked: model.kind = 'bidirectional-language-model' with model.head = 'tokens' is for "
            "regard train elmo; use that, or use other settings.",
        ),
        (
            ["masked", "--data", "text.txt", "--from", "elmo"],
            "regard train masked: model.kind = 'bidirectional-language-model' with model.head = 'tokens' is for "
            "regard train elmo; use that, or start from another model.",
        ),
        (
            ["elmo", "--data", "text.txt", "--from", "masked"],
            "regard train elmo: model.kind = 'encoder-only' with model.head = 'tokens' is for regard train masked; "
            "use that, or start from another model.",
        ),
        (
            ["gpt", "--data", "text.txt", "--preset", "bahdanau"],
            "regard train gpt: model.kind = 'recurrent-encoder-decoder' is for regard train translation; "
            "use that, or use other settings.",
        ),
        (
            ["classify", "--data", "labels.tsv", "--from", "gpt"],
            "gpt/best: has model.kind = 'recurrent-language-model', but model.kind = 'encoder-only' is set; "
            "start from a model of that kind.",
        ),
        (
            ["masked", "--data", "text.txt", "--from", "classify"],
            "classify: its tokenizer has no mask token, such as [MASK] or <mask>; "
            "start from a model that has one, such as those of regard train masked.",
        ),
        (
            ["word2vec", "--data", "text.txt", "--from", "elmo"],
            "--from does not apply to word2vec, which is trained on --data; remove it.",
        ),
        (["tag"], "there is no training data; pass --data."),
    ],
)
def test_task_and_network_must_fit(
    arguments: list[str], message: str, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained)
    done = regard("train", *arguments, "--out", "none")
    assert done.code == 2
    assert done.err == f"regard: {message}\n"
    assert not (trained / "none" / "run.json").exists()


@pytest.mark.parametrize("task", ["elmo", "masked"])
def test_evaluate_equals_the_validation_of_training(task: str, trained: Path) -> None:
    done = regard("evaluate", trained / task, "--data", trained / "valid.txt", "--json", "-q")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    valid = json.loads((trained / task / "run.json").read_text())["results"]["best"]
    assert result["scores"] == pytest.approx({name: valid[name] for name in result["scores"]}, rel=1e-4)
    assert {"elmo": "backward_perplexity", "masked": "accuracy"}[task] in result["scores"]
    assert result["tokens"] > 100
    assert "perplexity" in regard("evaluate", trained / task, "--data", trained / "valid.txt").out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["masked", "--data", "text.txt", "--beam", "2"],
            2,
            "--beam: is for translators, but masked/best is a masked language model; remove it.",
        ),
        (
            ["masked", "--data", "text.txt", "--context-length", "1000"],
            2,
            "--context-length 1000: this network has 128 positions; lower it.",
        ),
        (["elmo", "--data", "/dev/null"], 3, "/dev/null: has no text to evaluate a model on; provide some."),
        (
            ["elmo", "--source", "text.txt", "--target", "text.txt"],
            2,
            "elmo/best is a bidirectional language model, which reads --data, not --source and --target.",
        ),
    ],
)
def test_invalid_evaluation_is_an_error(
    arguments: list[str], code: int, message: str, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained)
    done = regard("evaluate", *arguments)
    assert (done.code, done.err) == (code, f"regard: {message}\n")


def test_models_of_all_tasks_are_compared(trained: Path, tmp_path: Path) -> None:
    runs = [trained / name for name in ("classify", "elmo", "masked", "translation")]
    done = regard("compare", *runs, "--out", tmp_path, "--sentences", "2", "--json", "-q")
    assert done.code == 0, done.err
    rows = {row["name"]: row for row in json.loads(done.out)}
    assert [name for name, row in rows.items() if row["decode_tokens_per_second"]] == ["translation"]
    assert "accuracy" in rows["classify"]["scores"]


def test_trace_of_a_decoder_with_attention_before_each_step(trained: Path, tmp_path: Path) -> None:
    trace = toolkit.load(trained / "translation").look("the cat", target="THE CAT")
    weights = trace.activation("decoder.cross_attention.weights")
    assert weights.shape == (1, len(trace.decoder_input), len(trace.labels("source_key") or []))
    assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:2], dtype=weights.dtype))
    assert regard("look", trained / "translation", "the cat").code == 0
    assert regard("look", trained / "translation", "the cat", "--html", tmp_path / "page.html").code == 0


def test_syntax_positions_need_parses_in_look_serve_and_compare(
    tmp_path: Path,
) -> None:
    rows = "1\ta\t_\t_\t_\t_\t0\t_\t_\t_\n2\tb\t_\t_\t_\t_\t1\t_\t_\t_\n\n"
    for name, content in (("a.en", "a b\n"), ("a.it", "b a\n"), ("a.conllu", rows)):
        (tmp_path / name).write_text(content * 20)
    options = [
        f"--{side}={tmp_path / 'a'}.{end}" for side, end in (("source", "en"), ("target", "it"), ("parses", "conllu"))
    ]
    valid = [option.replace("--", "--valid-", 1) for option in options]
    run = tmp_path / "syntax"
    done = regard("train", "translation", *options, *valid, "--out", run, "-q", *sets(*SHORT, *SMALL, *HEADS))
    assert done.code == 0, done.err
    done = regard("look", run, "a b")
    assert (done.code, done.err) == (
        2,
        "regard: the model has syntax positions and needs a parse of every sentence; pass the parses as "
        "CoNLL-U (--parses on the command line).\n",
    )
    done = regard("serve", run)
    assert (done.code, done.err) == (
        2,
        f"regard: {run / 'best'}: has syntax positions, which need a parse of every sentence; requests have none, so "
        "it cannot be served. Use regard translate with --parses.\n",
    )
    done = regard("compare", run, "--out", tmp_path / "compared", "--json", "-q")
    assert done.code == 0, done.err
    assert json.loads(done.out)[0]["decode_tokens_per_second"] is None
