"""`regard train` and `regard config show`."""

import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from commands import regard
from regard.registry import TASK_REGISTRY
from small_runs import SETTINGS, pairs, write_pairs


def sets(*settings: str) -> list[str]:
    return [part for setting in (*SETTINGS, *settings) for part in ("--set", setting)]


@pytest.mark.slow
def test_translator_from_two_aligned_files(tmp_path: Path) -> None:
    for side, name in enumerate(("en", "it")):
        lines = [pair[side] for pair in pairs(400)]
        (tmp_path / f"train.{name}").write_text("\n".join(lines) + "\n")
    files = ["--source", str(tmp_path / "train.en"), "--target", str(tmp_path / "train.it")]
    done = regard("train", "translation", *files, "--out", tmp_path / "run", *sets())
    assert done.code == 0, done.err
    assert done.out.splitlines()[-2:] == [
        f"Model:  {tmp_path / 'run' / 'best'}",
        f"Report: {tmp_path / 'run' / 'report.html'}",
    ]
    assert done.out.startswith("Validation (step 20, greedy search): loss ")
    assert "model.dropout = 0.3: less text needs more dropout.\n" in done.err
    assert not re.search(r"^model\.width = ", done.err, re.MULTILINE)  # set by the user
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert {"setting": "model.dropout", "value": "0.3", "reason": "less text needs more dropout"} in about[
        "automatic_settings"
    ]
    assert about["command"][:3] == ["regard", "train", "translation"]


@pytest.mark.slow
def test_a_scaled_down_recipe_of_the_paper_trains_and_decodes_with_its_settings(tmp_path: Path) -> None:
    files = (write_pairs(tmp_path / "train.tsv"), write_pairs(tmp_path / "test.tsv", 10, seed=1))
    data = ["--data", str(files[0]), "--test", str(files[1])]
    scaled = [setting for setting in SETTINGS if "schedule" not in setting]
    smaller = ["validation.every=3", "decoding.beam=2", "decoding.length_penalty=1.5"]
    settings = [part for setting in (*scaled, *smaller) for part in ("--set", setting)]
    done = regard("train", "translation", "--preset", "paper-base", *data, "--out", tmp_path / "run", *settings)
    assert done.code == 0, done.err
    assert "Averaging the weights of the last 5 validations." in done.err
    used = tomllib.loads((tmp_path / "run" / "config.toml").read_text("utf-8"))
    schedule = used["training"]["schedule"]
    assert (schedule["kind"], schedule["learning_rate"], schedule["warmup_steps"]) == ("inverse-sqrt", 6.98771e-4, 4000)
    assert (used["training"]["patience"], used["testing"]["beam"]) == (0, 4)
    assert "\nTest (beam 4, length penalty 0.6): loss " in done.out
    assert "test set, 10 sentences, beam 4, length penalty 0.6" in (tmp_path / "run" / "report.html").read_text("utf-8")
    shown = regard("evaluate", tmp_path / "run", "--data", tmp_path / "test.tsv").out
    assert shown.splitlines()[1].startswith("beam 2, length penalty 1.5, ")


@pytest.mark.slow
def test_language_model_from_stdin_and_resume(tmp_path: Path) -> None:
    text = "".join(f"line {n} of a short text\n" for n in range(300))
    shape = sets("training.schedule.warmup_steps=5", "data.context_length=32")
    done = regard("train", "gpt", "--data", "-", "--out", tmp_path / "run", *shape, stdin=text)
    assert done.code == 0, done.err
    assert "bits per byte" in done.out
    assert "search" not in done.out
    again = regard("train", "--out", tmp_path / "run", "--resume", "--set", "training.steps=22")
    assert again.code == 0, again.err
    assert "Resuming from step 20.\n" in again.err


def test_columns_by_name_and_swapped_headers(tmp_path: Path) -> None:
    rows = "".join(f'"{source}",{n},"{target}"\n' for n, (source, target) in enumerate(pairs(400)))
    (tmp_path / "a.csv").write_text(f"inglese,nr,italiano\n{rows}")
    tests = "".join(f"{target}\t{source}\n" for source, target in pairs(20))
    (tmp_path / "test.tsv").write_text(f"italiano\tinglese\n{tests}")
    files = ["--data", str(tmp_path / "a.csv"), "--test", str(tmp_path / "test.tsv")]
    columns = ["--source-column", "inglese", "--target-column", "italiano"]
    done = regard("train", "translation", *files, *columns, "--out", tmp_path / "run", *sets("training.steps=2"))
    assert done.code == 0, done.err
    note = "line 1 is a header; source = column 1 (inglese), target = column 3 (italiano), not used: column 2 (nr)."
    assert f"train: {tmp_path / 'a.csv'}: {note}\n" in done.err
    assert "line 1 is a header; source = column 2 (inglese), target = column 1 (italiano).\n" in done.err
    config = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert config["data"]["train"]["source_column"] == "inglese"
    saved = (tmp_path / "run" / "data" / "test.jsonl").read_text().splitlines()
    assert json.loads(saved[0]) == dict(zip(("source", "target"), pairs(1)[0], strict=True))


def test_columns_for_a_config_file(tmp_path: Path) -> None:
    data = tmp_path / "pairs.tsv"
    data.write_text("".join(f"{target}\t{source}\n" for source, target in pairs(400)))
    (tmp_path / "my.toml").write_text(f'preset = "tiny"\n[data]\ntrain.files = "{data}"\ntrain.source_column = 2\n')
    columns = ["--target-column", "1"]
    done = regard("train", tmp_path / "my.toml", *columns, "--out", tmp_path / "run", *sets("training.steps=2"))
    assert done.code == 0, done.err
    valid = json.loads((tmp_path / "run" / "data" / "valid.jsonl").read_text().splitlines()[0])
    assert (valid["source"], valid["target"]) in [tuple(pair) for pair in pairs(400)]


def test_config_file_and_origins_of_settings(tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.tsv")
    (tmp_path / "my.toml").write_text(f'preset = "tiny"\n[data]\ntrain.files = "{data}"\n[training]\nsteps = 3\n')
    small = sets("training.steps=3")
    done = regard("train", tmp_path / "my.toml", "--out", tmp_path / "run", *small)
    assert done.code == 0, done.err
    shown = regard("config", "show", tmp_path / "run").out
    lines = dict(line.split("  # ") for line in shown.splitlines() if "  # " in line)
    origins = {key.partition(" = ")[0]: origin for key, origin in lines.items()}
    assert origins["train.files"] == f"{tmp_path / 'my.toml'}:3"
    assert origins["dropout"] == "default"  # the tokenizer's, the last of that name
    assert origins["width"] == "--set model.width=32"
    assert tomllib.loads(shown)["training"]["steps"] == 3


def test_recipe_with_a_data_folder(tmp_path: Path) -> None:
    folder = tmp_path / "corpora"
    folder.mkdir()
    write_pairs(folder / "pairs.tsv")
    repeated = (folder / "pairs.tsv").read_text().splitlines()[:4]
    (folder / "test.tsv").write_text("\n".join([*repeated, *repeated]) + "\n")
    (tmp_path / "recipe.toml").write_text(
        '[data]\ntrain.files = "pairs.tsv"\ntest.files = ["test.tsv"]\n[validation]\nbleu_tokenizer = "none"\n'
        '[testing]\nbeam = 2\nreferences = "grouped"\n'
    )
    done = regard("train", tmp_path / "recipe.toml", folder, "--out", tmp_path / "run", *sets("training.steps=3"))
    assert done.code == 0, done.err
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["results"]["test"]["sentences"] == 4
    assert "tok:none" in about["signatures"]["bleu"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "is damaged ('utf-8' codec can't decode byte 0xff in position 0: invalid start byte)"),
        (b"[model", "is damaged (Expected ']' at the end of a table declaration (at end of document))"),
        ("pipe", "cannot be read (it is a pipe, not a regular file)"),
        ("/dev/zero", "cannot be read (it is a device, not a regular file)"),
        (None, "cannot be read (No such file or directory)"),
    ],
)
def test_config_show_of_a_run_with_damaged_settings(content: bytes | str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    match content:
        case bytes():
            path.write_bytes(content)
        case "pipe":
            os.mkfifo(path)
        case str():
            path.symlink_to(content)
    for options in ([], ["--json"]):
        done = regard("config", "show", tmp_path, *options)
        assert (done.code, done.err) == (2, f"regard: {path}: {message}; restore it from a copy.\n")


def test_config_show_of_a_run_in_json(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(regard("config", "show", "tiny").out)
    assert regard("config", "show", tmp_path).out == regard("config", "show", "tiny").out
    assert json.loads(regard("config", "show", tmp_path, "--json").out)["model"]["width"] == 128


def test_config_show_prints_the_origin_of_every_setting(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('preset = "tiny"\n\n[model]\nheads = 8\n')
    shown = regard("config", "show", tmp_path / "my.toml", "--set", "training.max_grad_norm=1.0").out.splitlines()
    assert "heads = 8                                 # " + f"{tmp_path / 'my.toml'}:4" in shown
    assert "width = 128                               # preset tiny:7" in shown
    assert "max_grad_norm = 1.0                       # --set training.max_grad_norm=1.0" in shown
    assert "seed = 1                                  # default" in shown
    assert json.loads(regard("config", "show", "tiny", "--json").out)["model"]["width"] == 128


@pytest.mark.slow
def test_invalid_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.tsv")
    with open(data, "ab") as file:
        file.write(b"no tab here\n\xff\xfe\tbroken\n\tempty source\n")
    refused = regard("train", "translation", "--data", data, "--out", tmp_path / "run", *sets())
    assert refused.code == 3
    assert refused.err.splitlines()[-1] == (
        f"regard: {data}:301: no tab; write source, tab, target, or skip such lines with --skip-invalid."
    )
    done = regard("train", "translation", "--data", data, "--out", tmp_path / "run", "--skip-invalid", *sets())
    assert done.code == 0, done.err
    assert (
        f"train: 1 skipped: too few columns ({data}:301: no tab; write source, tab, target).\n"
        f"train: 1 skipped: not UTF-8 ({data}:302: not UTF-8 (byte 1 of the line is 0xff); convert the file).\n"
        f"train: 1 skipped: empty ({data}:303: empty source; fill it in).\n"
    ) in done.err
    counts = json.loads((tmp_path / "run" / "run.json").read_text())["data"]["train"]
    assert {reason: count for reason, count in counts.items() if reason.startswith("skipped")} == {
        "skipped: too few columns": 1,
        "skipped: not UTF-8": 1,
        "skipped: empty": 1,
    }


TASKS = ", ".join(TASK_REGISTRY.names())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, f"the task is missing; pass {TASKS}, or a TOML file."),
        (
            ["gpt", "--source", "a.en"],
            2,
            "a language model is trained on --data; --source and --target are for translation.",
        ),
        (
            ["bert", "--valid-target", "a"],
            2,
            "an encoder is validated on --valid; --valid-source and --valid-target are for translation.",
        ),
        (["classify", "--parses", "a"], 2, "--parses: is for translation, where the source has parses; drop it."),
        (["translation", "--source", "a.en"], 2, "--target is missing: a translator needs both sides, line by line."),
        (
            ["translation", "--data", "a.tsv", "--valid-target", "b"],
            2,
            "--valid-source is missing: a translator needs both sides, line by line.",
        ),
        (["translation", "--out", "x"], 2, "there is no training data; pass --source and --target, or --data."),
        (
            ["translatoin"],
            2,
            f"'translatoin' is not a task (did you mean translation?); pass {TASKS}, or a TOML file.",
        ),
        (
            ["tiny"],
            2,
            f"'tiny' is not a task (it is a preset: pass it with --preset); pass {TASKS}, or a TOML file.",
        ),
        (["--resume"], 2, "--resume: pass the run folder with --out."),
        (["--resume", "--out", "nowhere"], 2, "nowhere: holds no run to resume; check --out."),
        (
            ["x.toml", "--preset", "tiny"],
            2,
            f"--preset tiny: is for tasks ({TASKS}); in a file, write preset = 'tiny'.",
        ),
        (
            ["translation", "corpora"],
            2,
            "corpora: files and folders with data are passed with an option; write --data corpora.",
        ),
        (
            ["translation", "a.tsv", "b.tsv", "c.tsv", "--out", "x"],
            2,
            "a.tsv b.tsv c.tsv: files and folders with data are passed with an option; write --data a.tsv b.tsv c.tsv.",
        ),
        (["gpt", "--data", "/dev/null", "--out", "x"], 3, "/dev/null: has no text to train on; provide more text."),
        (
            ["translation", "--data", "/dev/null", "--out", "x"],
            3,
            "/dev/null: has no text to train on; provide more text.",
        ),
        (
            ["gpt", "--source", "a", "--target", "b", "--out", "x"],
            2,
            "a language model is trained on --data; --source and --target are for translation.",
        ),
        (
            ["gpt", "--data", "a", "--test-source", "a", "--test-target", "b", "--out", "x"],
            2,
            "a language model is tested on --test; --test-source and --test-target are for translation.",
        ),
        (
            ["translation", "--data", "a", "--set", "model.heads=7", "--out", "x"],
            2,
            "--set model.heads=7: model.heads = 7 does not divide model.width = 128: use 4 or 8.",
        ),
        (
            ["gpt", "--data", "a", "--set", "model.kind=encoder-only", "--out", "x"],
            2,
            "model.kind = 'encoder-only' without a model.head predicts nothing, so it cannot be trained; "
            "set model.head to 'tokens', 'classes' or 'tags'.",
        ),
        (["gpt", "--data", "missing.txt", "--out", "x"], 3, "missing.txt: not found; check the path."),
        (
            ["translation", "--source", "-", "--target", "-", "--out", "x"],
            2,
            "standard input (-) can be read only once; pass the other part as a file.",
        ),
        (
            ["gpt", "--data", "builtin:phrasebook", "--out", "x"],
            3,
            "builtin:phrasebook: holds sentence pairs, not documents; use builtin:python-docs and "
            "builtin:python-docs-dev.",
        ),
    ],
)
def test_invalid_input_is_an_error(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = regard("train", *arguments)
    assert (done.code, done.err.splitlines()[-1]) == (code, f"regard: {message}")


DATA_FILES = {
    "a.tsv": "regard train translation --data a.tsv",
    "a.tsv.gz": "regard train translation --data a.tsv.gz",
    "a.csv": "regard train translation --data a.csv",
    "a.csv.xz": "regard train translation --data a.csv.xz",
    "a.jsonl": "regard train translation --data a.jsonl",
    "a.parquet": "regard train translation --data a.parquet",
    "missing.tsv": "regard train translation --data missing.tsv",
    "s3://bucket/a.tsv": "regard train translation --data s3://bucket/a.tsv",
    "my pairs.tsv": "regard train translation --data 'my pairs.tsv'",
    "a.tsv b.tsv": "regard train translation --data a.tsv b.tsv",
    "a.tsv b.tsv a.csv": "regard train translation --data a.tsv b.tsv a.csv",
    "a.en a.it": "regard train translation --source a.en --target a.it",
    "a.txt": "regard train gpt --data a.txt",
    "a.txt.gz": "regard train gpt --data a.txt.gz",
    "book": "regard train gpt --data book",
    "texts": "regard train gpt --data texts",
    "tables": "regard train translation --data tables",
    "a.conll": "regard train tag --data a.conll",
}


@pytest.mark.parametrize("files", DATA_FILES)
def test_data_without_a_task(files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [files] if files == "my pairs.tsv" else files.split()
    for folder in ("texts", "tables"):
        Path(folder).mkdir()
    for file in ["texts/a.txt", "tables/a.tsv", *(name for name in arguments if "missing" not in name)]:
        if file == "book" or ("." in file and "://" not in file):
            Path(file).write_bytes(b"a\tb\n\xff")
    done = regard("train", *arguments)
    assert done.code == 2
    assert done.err.startswith(f"regard: {files}: looks like data, not like a task or a TOML file; pass the task too: ")
    assert done.err.partition("pass the task too: ")[2].startswith(f"`{DATA_FILES[files]}`")
    if not arguments[0].endswith((".en", ".gz", ".xz")):
        prepare = regard("prepare", *arguments[:2])
        assert prepare.code == 2
        assert "`regard prepare " in prepare.err
    if "--data" in DATA_FILES[files]:
        assert f": `{DATA_FILES[files]}`" in regard("train", "--data", *arguments).err


def test_a_run_or_a_file_without_settings_in_the_place_of_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    Path("run/run.json").write_text("{}")
    assert "`regard train --resume --out run` resumes a run, `regard train TASK --data FILE --from run`" in (
        regard("train", "run").err
    )
    Path("a.tsv").write_text("a\tb\n")
    for command in (("config", "show"), ("plan",), ("model",)):
        assert "a.tsv: is not a TOML file with settings; pass one, or a preset: " in regard(*command, "a.tsv").err


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("translation", "--data", "missing.tsv"),
        ("gpt", "--data", "empty.txt"),
        ("translation", "--data", "one.tsv", "--set", "training.steps=1"),
        ("translation", "--data", "damaged.tsv", "--set", "training.steps=1"),
        ("word2vec", "--data", "missing.txt"),
        ("translation", "--data", "missing.tsv", "--set", "model.width=7"),
        ("--resume",),
    ],
)
@pytest.mark.parametrize("existing", [None, "runs", "runs/new"])
def test_a_start_that_fails_leaves_no_folder(
    arguments: tuple[str, ...], existing: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").write_text("")
    Path("one.tsv").write_text("one\tuno\n")  # nothing can be held out
    Path("damaged.tsv").write_text("one\tuno\n" * 9 + "no tab\n")
    if existing is not None:
        Path(existing).mkdir(parents=True)
    assert regard("train", *arguments, "--out", "runs/new").code in (2, 3)
    assert Path("runs/new").exists() == (existing == "runs/new")
    assert Path("runs").exists() == (existing is not None)


@pytest.mark.slow
def test_settings_are_checked_together_with_automatic_settings(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("".join(f"line {n} of a short text\n" for n in range(300)))
    short = ["model.positions.max_length=4", "training.steps=3", "model.width=32", "model.layers=1"]
    settings = [part for setting in short for part in ("--set", setting)]
    done = regard("train", "gpt", "--data", tmp_path / "text.txt", "--out", tmp_path / "run", *settings)
    assert done.code == 0, done.err
    assert "model.positions.max_length = " not in done.err  # set by the user
    assert "training.schedule.warmup_steps = 1: " in done.err
    plain = ["--set", "model.positions=sinusoidal", "--set", "training.optimizer=adam"]
    done = regard("train", "gpt", "--data", tmp_path / "text.txt", "--out", tmp_path / "other", *settings[2:], *plain)
    assert done.code == 0, done.err
    assert "model.positions" not in done.err  # sines have no length to be picked
    assert "weight_decay" not in done.err


@pytest.mark.parametrize("part", ["valid", "test"])
def test_invalid_validation_and_test_data_fail_before_training(part: str, tmp_path: Path) -> None:
    data, bad = write_pairs(tmp_path / "pairs.tsv"), tmp_path / "bad.tsv"
    out = ["--out", str(tmp_path / "run"), *sets()]
    bad.write_text("a\tb\nno tab\n")
    done = regard("train", "translation", "--data", data, f"--{part}", bad, *out)
    assert done.code == 3
    assert done.err == (
        f"regard: {bad}:2: no tab; write source, tab, target, or skip such lines with --skip-invalid.\n"
    )
    bad.write_text("")
    done = regard("train", "translation", "--data", data, f"--{part}", bad, *out)
    name = {"valid": "validation", "test": "test"}[part]
    assert done.code == 3
    assert done.err == f"regard: {bad}: has no text to use as {name} data; provide more text.\n"
    (tmp_path / "one.txt").write_text("a\n")
    done = regard("train", "gpt", "--data", tmp_path / "one.txt", "--out", tmp_path / "one")
    assert done.code == 3
    assert f"data.valid has no text to measure the model on; pass more text than {tmp_path / 'one.txt'}" in done.err
    assert not (tmp_path / "one").exists()
    done = regard("train", "translation", "--data", data, f"--{part}", tmp_path / "missing.tsv", *out)
    assert done.err == f"regard: {tmp_path / 'missing.tsv'}: not found; check the path.\n"


@pytest.mark.slow
def test_training_data_used_for_validation_is_a_warning(tmp_path: Path) -> None:
    data, link = write_pairs(tmp_path / "pairs.tsv"), tmp_path / "link.tsv"
    link.symlink_to(data)
    few = sets("training.steps=2")
    done = regard("train", "translation", "--data", data, "--valid", link, "--out", tmp_path / "run", *few)
    assert done.code == 0, done.err
    assert done.err.startswith(
        f"{link}: is both training and validation data; scores on it say little about new text.\n"
    )


@pytest.mark.slow
def test_existing_tokenizer_file_is_used(tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.tsv")
    first = regard("train", "translation", "--data", data, "--out", tmp_path / "first", *sets())
    assert first.code == 0, first.err
    tokenizer = tmp_path / "first" / "tokenizer.json"
    file = f"tokenizer.file={tokenizer}"
    second = regard("train", "translation", "--data", data, "--out", tmp_path / "second", *sets(file))
    assert second.code == 0, second.err
    assert (tmp_path / "second" / "best" / "tokenizer.json").read_bytes() == tokenizer.read_bytes()
    (tmp_path / "broken.json").write_text("{}")
    broken = f"tokenizer.file={tmp_path / 'broken.json'}"
    third = regard("train", "translation", "--data", data, "--out", tmp_path / "third", *sets(broken))
    assert third.code == 3
    assert third.err.startswith(f"regard: {tmp_path / 'broken.json'}: cannot be read as a tokenizer (")
    assert third.err.endswith("; pass another tokenizer.json.\n")
