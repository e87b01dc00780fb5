"""The commands across the family: what one makes, the others start from, measure, compare and look at."""

import json
from pathlib import Path

import pytest
import torch

import regard as toolkit
from commands import regard
from labelled_runs import followers, negations, write_columns, write_table
from regard.models.recurrent import BidirectionalLanguageModel
from regard.models.weights import read_tensors

SHORT = ("training.steps=4", "training.batch_tokens=4096", "validation.every=2", "training.threads=1")
SMALL = ("model.width=16", "model.layers=1", "model.vocab_size=280")
HEADS = ("model.heads=2", "model.feed_forward=24")


def sets(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, and with small models that learned next to nothing from it."""
    folder = tmp_path_factory.mktemp("family")
    texts = [text for _, text in negations(150)]
    (folder / "text.txt").write_text("".join(f"{text}\n" for text in texts[:120]))
    (folder / "valid.txt").write_text("".join(f"{text}\n" for text in texts[120:]))
    (folder / "pairs.tsv").write_text("".join(f"{text}\t{text.upper()}\n" for text in texts))
    write_table(folder / "labels.tsv", negations(120))
    write_columns(folder / "tags.conll", followers(60))
    text: list[str | Path] = ["--data", folder / "text.txt", "--valid", folder / "valid.txt"]
    small = sets(*SHORT, *SMALL)
    runs: list[tuple[str, list[str | Path], list[str]]] = [
        ("elmo", text, []),
        ("masked", text, sets(*HEADS)),
        ("gpt", text, ["--preset", "lstm-lm"]),
        ("classify", ["--data", folder / "labels.tsv"], sets(*HEADS)),
        ("translation", ["--data", folder / "pairs.tsv"], ["--preset", "bahdanau"]),
    ]
    for what, data, more in runs:
        done = regard("train", what, *data, "--out", folder / what, "-q", *more, *small)
        assert done.code == 0, done.err
    return folder


@pytest.mark.parametrize("frozen", [False, True], ids=["whole", "frozen"])
@pytest.mark.parametrize(("what", "data"), [("classify", "labels.tsv"), ("tag", "tags.conll")])
def test_a_task_that_starts_from_an_elmo_learns_how_to_mix_its_layers(
    what: str, data: str, frozen: bool, made: Path, tmp_path: Path
) -> None:
    more = sets(*SHORT, f"training.freeze_encoder={str(frozen).lower()}", "training.schedule.learning_rate=0.01")
    done = regard("train", what, "--data", made / data, "--from", made / "elmo", "--out", tmp_path / "run", *more)
    assert done.code == 0, done.err
    network = toolkit.load(tmp_path / "run").network
    assert isinstance(network, BidirectionalLanguageModel)
    assert network.mixing.scalars.abs().min() > 0
    assert network.mixing.scale.item() != 1.0
    before, after = (read_tensors(run / "best" / "model.safetensors") for run in (made / "elmo", tmp_path / "run"))
    name = next(name for name in after if name.startswith("encoder.") and name.endswith("weight"))
    assert torch.equal(before[name], after[name]) == frozen


def test_a_labelling_elmo_can_learn_from_nothing_and_be_used(made: Path, tmp_path: Path) -> None:
    kind = sets("model.kind=bidirectional-language-model", *SHORT, *SMALL)
    done = regard("train", "classify", "--data", made / "labels.tsv", "--out", tmp_path / "run", *kind)
    assert done.code == 0, done.err
    network = toolkit.load(tmp_path / "run").network
    assert isinstance(network, BidirectionalLanguageModel)
    assert network.mixing.scalars.abs().min() > 0
    assert toolkit.load(tmp_path / "run").classify("the cat is not red") in ("negated", "plain")


@pytest.mark.parametrize(("what", "data"), [("gpt", "text.txt"), ("translation", "pairs.tsv")])
def test_recurrent_networks_are_started_from_too(what: str, data: str, made: Path, tmp_path: Path) -> None:
    short = sets(*SHORT)
    done = regard("train", what, "--data", made / data, "--from", made / what, "--out", tmp_path / "run", *short)
    assert done.code == 0, done.err
    assert toolkit.load(tmp_path / "run").config.model == toolkit.load(made / what).config.model


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["classify", "--data", "labels.tsv", "--set", "model.kind=decoder-only"],
            "regard train classify: model.kind = 'decoder-only' is for regard train gpt; use that, or give other "
            "settings.",
        ),
        (
            ["masked", "--data", "text.txt", "--set", "model.kind=bidirectional-language-model"],
            "regard train masked: model.kind = 'bidirectional-language-model' with model.head = 'tokens' is for "
            "regard train elmo; use that, or give other settings.",
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
            "use that, or give other settings.",
        ),
        (
            ["classify", "--data", "labels.tsv", "--from", "gpt"],
            "gpt/best: is of the kind recurrent language model, but model.kind = 'encoder-only' is asked for; "
            "start from a model of that kind.",
        ),
        (
            ["masked", "--data", "text.txt", "--from", "classify"],
            "classify: its tokenizer has no token to hide others behind, such as [MASK] or <mask>; "
            "start from a model that has, as regard train masked makes them.",
        ),
        (
            ["word2vec", "--data", "text.txt", "--from", "elmo"],
            "--from means nothing to word2vec, which learns from --data; leave it out.",
        ),
        (["tag"], "there is nothing to learn from; give --data."),
    ],
)
def test_a_command_trains_what_it_says_or_nothing(
    arguments: list[str], sentence: str, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    done = regard("train", *arguments, "--out", "none")
    assert done.code == 2
    assert done.err == f"regard: {sentence}\n"
    assert not (made / "none" / "run.json").exists()


@pytest.mark.parametrize("what", ["elmo", "masked"])
def test_text_encoders_are_evaluated_as_their_training_validates_them(what: str, made: Path) -> None:
    done = regard("evaluate", made / what, "--data", made / "valid.txt", "--json", "-q")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    valid = json.loads((made / what / "run.json").read_text())["results"]["best"]
    assert found["scores"] == pytest.approx({name: valid[name] for name in found["scores"]}, rel=1e-4)
    assert {"elmo": "backward_perplexity", "masked": "accuracy"}[what] in found["scores"]
    assert found["tokens"] > 100
    assert "perplexity" in regard("evaluate", made / what, "--data", made / "valid.txt").out


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (
            ["masked", "--data", "text.txt", "--beam", "2"],
            2,
            "--beam: is for translators, but masked/best is an encoder-only Transformer; drop it.",
        ),
        (
            ["masked", "--data", "text.txt", "--context-length", "1000"],
            2,
            "--context-length 1000: this network has 128 positions; lower it.",
        ),
        (["elmo", "--data", "/dev/null"], 3, "/dev/null: has no text to evaluate a model on; give some."),
        (
            ["elmo", "--source", "text.txt", "--target", "text.txt"],
            2,
            "elmo/best predicts tokens of a text, and reads --data, not --source and --target.",
        ),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(
    arguments: list[str], code: int, sentence: str, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    done = regard("evaluate", *arguments)
    assert (done.code, done.err) == (code, f"regard: {sentence}\n")


def test_models_of_all_tasks_are_compared_and_labelled_texts_are_not_translated(made: Path, tmp_path: Path) -> None:
    runs = [made / name for name in ("classify", "elmo", "masked", "translation")]
    done = regard("compare", *runs, "--out", tmp_path, "--sentences", "2", "--json", "-q")
    assert done.code == 0, done.err
    rows = {row["name"]: row for row in json.loads(done.out)}
    assert [name for name, row in rows.items() if row["writing_speed"]] == ["translation"]
    assert "accuracy" in rows["classify"]["scores"]


def test_a_decoder_that_attends_before_each_step_can_be_looked_at(made: Path, tmp_path: Path) -> None:
    trace = toolkit.load(made / "translation").look("the cat", target="THE CAT")
    weights = trace.activation("decoder.cross_attention.weights")
    assert weights.shape == (1, len(trace.decoder_input), len(trace.labels("source_key") or []))
    assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:2], dtype=weights.dtype))
    assert regard("look", made / "translation", "the cat").code == 0
    assert regard("look", made / "translation", "the cat", "--html", tmp_path / "page.html").code == 0


def test_a_translator_that_reads_parses_is_not_looked_at_without_one_nor_served_and_compared_without_its_speed(
    tmp_path: Path,
) -> None:
    rows = "1\ta\t_\t_\t_\t_\t0\t_\t_\t_\n2\tb\t_\t_\t_\t_\t1\t_\t_\t_\n\n"
    for name, content in (("a.en", "a b\n"), ("a.it", "b a\n"), ("a.conllu", rows)):
        (tmp_path / name).write_text(content * 20)
    given = [
        f"--{side}={tmp_path / 'a'}.{end}" for side, end in (("source", "en"), ("target", "it"), ("parses", "conllu"))
    ]
    valid = [option.replace("--", "--valid-", 1) for option in given]
    run = tmp_path / "syntax"
    done = regard("train", "translation", *given, *valid, "--out", run, "-q", *sets(*SHORT, *SMALL, *HEADS))
    assert done.code == 0, done.err
    done = regard("look", run, "a b")
    assert (done.code, done.err) == (
        2,
        "regard: the model has syntax positions and needs a parse of every sentence; pass them as CoNLL-U with "
        "--parses (in Python, parses=…).\n",
    )
    done = regard("serve", run)
    assert (done.code, done.err) == (
        2,
        f"regard: {run / 'best'}: has syntax positions, which need a parse of every sentence; requests have none, so "
        "it cannot be served. Use regard translate with --parses.\n",
    )
    done = regard("compare", run, "--out", tmp_path / "compared", "--json", "-q")
    assert done.code == 0, done.err
    assert json.loads(done.out)[0]["writing_speed"] is None
