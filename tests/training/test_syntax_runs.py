"""Parses in every command: training, translating, evaluating and scoring with syntax positions."""

import json
import random
from pathlib import Path

import pytest

import regard
from commands import CommandResult
from commands import regard as command
from regard.errors import ConfigError, DataError
from small_runs import SETTINGS, WORDS
from toy_trees import conllu, random_heads

pytestmark = pytest.mark.slow

QUICK = [part for setting in [*SETTINGS, "training.steps=6"] for part in ("--set", setting)]


def write_corpus(folder: Path, name: str, count: int, seed: int) -> dict[str, Path]:
    """Sentences whose translation is the word at the root, which only the parse determines."""
    draw = random.Random(seed)
    sources, targets, parses = [], [], []
    for _ in range(count):
        words = draw.choices(list(WORDS), k=draw.randint(2, 5))
        heads = random_heads(len(words), draw)
        sources.append(" ".join(words))
        targets.append(WORDS[words[heads.index(0)]])
        parses.append(conllu(words, heads))
    files = {"source": folder / f"{name}.en", "target": folder / f"{name}.it", "parses": folder / f"{name}.conllu"}
    for file, content in zip(files.values(), ("\n".join(sources), "\n".join(targets), "".join(parses)), strict=True):
        file.write_text(content if file.suffix == ".conllu" else f"{content}\n", "utf-8")
    return files


def options(files: dict[str, Path], prefix: str = "--") -> list[str]:
    return [part for name, file in files.items() for part in (f"{prefix}{name}", str(file))]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Path]]:
    folder = tmp_path_factory.mktemp("data")
    sizes = {"train": 800, "valid": 30, "test": 20}
    return {name: write_corpus(folder, name, count, seed) for seed, (name, count) in enumerate(sizes.items())}


@pytest.fixture(scope="module")
def learned(data: dict[str, dict[str, Path]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model trained by the command, without a setting for positions."""
    out = tmp_path_factory.mktemp("runs") / "learned"
    longer = ["training.steps=260", "validation.every=130", "training.batch_tokens=500", "model.dropout=0.0"]
    settings = [part for setting in [*SETTINGS, *longer] for part in ("--set", setting)]
    parts = [*options(data["train"]), *options(data["valid"], "--valid-"), *options(data["test"], "--test-")]
    done = command("train", "translation", *parts, "--out", out, "--quiet", *settings)
    assert done.code == 0, done.err
    return out


def test_parses_select_syntax_positions_and_the_tree_is_learned(learned: Path) -> None:
    info = json.loads((learned / "run.json").read_text())
    chosen = {setting["setting"]: setting for setting in info["automatic_settings"]}
    assert chosen["model.positions.kind"]["value"] == "syntax"
    assert chosen["model.positions.kind"]["reason"] == "the source comes with parses"
    assert info["results"]["test"]["exact"] > 0.8  # a random word of the sentence would give about 0.3


def test_the_command_and_python_give_the_same_translations_in_any_batch(
    learned: Path, data: dict[str, dict[str, Path]]
) -> None:
    test = data["test"]
    lines = test["source"].read_text().splitlines()
    blocks = [f"{block}\n\n" for block in test["parses"].read_text().strip().split("\n\n")]
    done = command("translate", learned, "--parses", test["parses"], stdin=test["source"].read_bytes())
    model = regard.load(learned)
    translations = model.translate(lines, parses=test["parses"])
    assert done.out.splitlines() == translations
    assert model.translate(lines, parses=blocks) == translations
    assert list(model.translate(iter(lines), parses=blocks)) == translations
    assert [model.translate(line, parses=[block]) for line, block in zip(lines, blocks, strict=True)] == translations


def test_another_tree_gives_another_translation(learned: Path) -> None:
    model, words = regard.load(learned), ["one", "two", "three"]
    trees = [[0, 1, 1], [2, 0, 2], [3, 3, 0]]
    outputs = [model.translate("one two three", parses=[conllu(words, heads)]) for heads in trees]
    assert outputs == ["uno", "due", "tre"]


def test_evaluating_and_scoring_read_parses(learned: Path, data: dict[str, dict[str, Path]]) -> None:
    test = data["test"]
    evaluated = command("evaluate", learned, *options(test), "--json", "--quiet")
    result = json.loads(evaluated.out)
    assert result["engine"] == "torch"
    assert result["scores"]["exact"] > 0.8
    scored = command("score", learned, *options(test))
    model = regard.load(learned)
    texts, targets = (test[side].read_text().splitlines() for side in ("source", "target"))
    own = model.score(texts, targets, parses=test["parses"])
    assert [float(line) for line in scored.out.splitlines()] == pytest.approx(own, abs=1e-3)


def test_empty_lines_have_no_parse_and_invalid_ones_can_be_skipped(learned: Path, tmp_path: Path) -> None:
    parses = tmp_path / "p.conllu"
    parses.write_text(conllu(["one", "two"], [0, 1]) + conllu(["six"], [0]) + conllu(["two"], [0]))
    lines = b"one two\n\nfive\ntwo\n"
    stopped = command("translate", learned, "--parses", parses, stdin=lines)
    assert (stopped.code, stopped.err) == (
        3,
        f"regard: standard input:3: has 'five' where the parse has 'six' ({parses}:6); pass the parse of this line, "
        "or skip such lines with --skip-invalid.\n",
    )
    skipped = command("translate", learned, "--parses", parses, "--skip-invalid", stdin=lines)
    assert skipped.out.split("\n") == ["uno", "", "", "due", ""]
    assert "1 lines skipped: parse of another text." in skipped.err


def test_a_line_with_a_parse_is_not_split(learned: Path) -> None:
    words = ["one", ".", "Two"]
    (translation,) = regard.load(learned).translate_detailed(["one. Two"], parses=[conllu(words, [0, 1, 1])])
    assert len(translation.sentences) == 1


MISSING = (
    "the model has syntax positions and needs a parse of every sentence; "
    "pass the parses as CoNLL-U (--parses on the command line)."
)


def test_text_without_parses_is_an_error(learned: Path, data: dict[str, dict[str, Path]]) -> None:
    sides = [part for name in ("source", "target") for part in (f"--{name}", str(data["test"][name]))]
    for done in (
        command("translate", learned, stdin=b"one two\n"),
        command("evaluate", learned, *sides),
        command("score", learned, *sides),
    ):
        assert (done.code, done.err) == (2, f"regard: {MISSING}\n")
    model = regard.load(learned)
    for call in (lambda: model.translate("one two"), lambda: model.score(["one"], ["uno"])):
        with pytest.raises(ConfigError) as error:
            call()
        assert str(error.value) == MISSING


def test_parses_without_lines_are_an_error(learned: Path, data: dict[str, dict[str, Path]]) -> None:
    parses = data["test"]["parses"]
    with pytest.raises(DataError) as error:
        regard.load(learned).translate([], parses=parses)
    location = f"{parses}:2"
    assert str(error.value) == (
        f"{location}: a parse without a line, because the text ends before it; pass one for every line."
    )


def test_standard_input_cannot_be_lines_and_parses(learned: Path) -> None:
    done = command("translate", learned, "--parses", "-", stdin=b"one\n")
    assert (done.code, done.err) == (
        2,
        "regard: standard input (-) can be read only once; pass the lines or their parses as a file.\n",
    )


def test_other_engines_and_formats_do_not_support_syntax_positions(learned: Path, tmp_path: Path) -> None:
    reason = "CTranslate2 has no syntax positions"
    done = command("translate", learned, "--engine", "ctranslate2", "--parses", "x", stdin=b"")
    assert (done.code, done.err) == (
        2,
        f"regard: the engine ctranslate2 cannot be used because {reason}; use the engine torch, or auto.\n",
    )
    for target, message in (("ctranslate2", reason), ("huggingface", "this network's are syntax")):
        refused = command("export", learned, "--to", target, "--out", tmp_path / target)
        assert refused.code != 0
        assert message in refused.err


def train_briefly(out: Path, *arguments: str) -> CommandResult:
    return command("train", "translation", *arguments, "--out", out, "--quiet", *QUICK)


def test_parses_and_positions_must_agree(data: dict[str, dict[str, Path]], tmp_path: Path) -> None:
    train, valid = data["train"], data["valid"]
    sides = options({name: train[name] for name in ("source", "target")})
    valid_sides = options({name: valid[name] for name in ("source", "target")}, "--valid-")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("one\tuno\n")
    syntax = ["--set", "model.positions=syntax"]
    needed = "model.positions = 'syntax' needs every sentence parsed, as CoNLL-U."
    for arguments, message in (
        ([*sides, *syntax], f"--parses is missing: {needed}"),
        ([*options(train), *valid_sides], f"--valid-parses is missing: {needed}"),
        (
            [*options(train), "--set", "model.positions=rotary"],
            "--parses: is for model.positions = 'syntax', but model.positions = 'rotary'; "
            "drop it, or use those positions.",
        ),
        (
            ["--data", str(pairs), *syntax],
            f"{pairs}: holds pairs without parses, but model.positions = 'syntax' needs them; "
            "pass --source, --target and --parses instead.",
        ),
        (
            ["--data", str(pairs), "--parses", str(train["parses"])],
            "--parses: needs --source, which is missing; add it.",
        ),
    ):
        done = train_briefly(tmp_path / "run", *arguments)
        assert (done.code, done.err) == (2, f"regard: {message}\n")


def test_recurrent_networks_and_language_models_use_no_parses(data: dict[str, dict[str, Path]], tmp_path: Path) -> None:
    recurrent = ["--set", "model.kind=recurrent-encoder-decoder"]
    done = command("train", "translation", *options(data["train"]), *recurrent, "--out", tmp_path / "run", "--quiet")
    assert (done.code, done.err) == (
        2,
        "regard: --parses: is for model.positions = 'syntax', but the network is recurrent; "
        "drop it, or use those positions.\n",
    )
    text = command("train", "gpt", "--data", data["train"]["source"], "--set", "data.train.parses=x", "--quiet")
    assert (text.code, text.err) == (
        2,
        "regard: --parses: is for translation, where the source has parses; drop it.\n",
    )


def test_a_model_without_syntax_reads_no_parses(
    learned: Path, data: dict[str, dict[str, Path]], tmp_path: Path
) -> None:
    sides = options({name: data["test"][name] for name in ("source", "target")})
    assert train_briefly(tmp_path / "run", *sides, "--set", "data.validation_fraction=0.2").code == 0
    other = command("translate", learned, "--ensemble", tmp_path / "run", "--parses", "x", stdin=b"one\n")
    best = [folder / "best" for folder in (learned, tmp_path / "run")]
    message = f"regard: {best[0]}: needs parses, and cannot form an ensemble with {best[1]}, which uses none.\n"
    assert (other.code, other.err) == (2, message)
    unused = "the model has no syntax positions and uses no parses; remove them."
    for done in (
        command("translate", tmp_path / "run", "--parses", data["test"]["parses"], stdin=b"one\n"),
        command("evaluate", tmp_path / "run", *options(data["test"])),
    ):
        assert (done.code, done.err) == (2, f"regard: {unused}\n")


def test_an_invalid_parse_is_an_error_before_training(data: dict[str, dict[str, Path]], tmp_path: Path) -> None:
    parses = tmp_path / "bad.conllu"
    parses.write_text(data["valid"]["parses"].read_text().replace("\t0\t", "\t1\t", 1))
    done = train_briefly(tmp_path / "run", *options(data["valid"] | {"parses": parses}))
    assert done.code == 3
    assert done.err.startswith(f"regard: {parses}:")
    assert "is in a cycle of heads" in done.err


def test_changed_parses_are_an_error_on_resume(data: dict[str, dict[str, Path]], tmp_path: Path) -> None:
    own = {name: tmp_path / file.name for name, file in data["valid"].items()}
    for name, file in own.items():
        file.write_bytes(data["valid"][name].read_bytes())
    split = ["--set", "data.validation_fraction=0.2"]
    assert train_briefly(tmp_path / "run", *options(own), *split).code == 0
    own["parses"].write_text(own["parses"].read_text() + "# changed\n")
    done = command("train", "--out", tmp_path / "run", "--resume", "--set", "training.steps=8", "--quiet")
    assert done.code == 1
    assert "its data files have changed since it was started" in done.err
