"""Config sources: precedence of sources, and the error message of every invalid setting."""

from pathlib import Path

import pytest

from regard.config import Config, TransformerConfig, load_config, preset_names
from regard.errors import ConfigError


def error_message(source: str | Path | None, *sets: str) -> str:
    with pytest.raises(ConfigError) as error:
        load_config(source, sets)
    assert error.value.exit_code == 2
    return str(error.value)


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('preset = "tiny"\n[model]\nheads = 8\ndropout = 0.2\n')
    model = load_config(file, ["model.dropout=0.5"]).model
    assert isinstance(model, TransformerConfig)
    assert model.norm_order == "post"  # the default
    assert model.width == 128  # the preset
    assert model.heads == 8  # the file
    assert model.dropout == 0.5  # --set


def test_table_of_another_kind_keeps_common_settings() -> None:
    other = load_config("gpt-small", ['model.positions={kind="sinusoidal", layout="halves"}']).model.model_dump()
    assert other["positions"] == {"kind": "sinusoidal", "combine": "add", "width": None, "layout": "halves"}
    same = load_config("gpt-small", ["model.positions.max_length=64"]).model.model_dump()
    assert same["positions"] == {"kind": "learned", "combine": "add", "width": None, "max_length": 64}
    for sets in (["model.kind=decoder-only"], ["model=decoder-only"]):
        model = load_config("tiny", ["model.width=64", "model.decoder_layers=2", *sets]).model
        assert (model.kind, model.width, model.layers) == ("decoder-only", 64, 4)


def test_variant_by_its_name() -> None:
    model = load_config("tiny", ["model.positions=learned", "model.positions.max_length=77"]).model
    positions = model.model_dump(exclude_none=True)["positions"]
    assert positions == {"kind": "learned", "combine": "add", "max_length": 77}
    assert load_config(None, ["model=decoder-only"]).model.kind == "decoder-only"


@pytest.mark.parametrize("preset", preset_names())
def test_json_round_trip(preset: str) -> None:
    config = load_config(preset)
    assert Config.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.heads=7", "model.heads = 7 does not divide model.width = 128: use 4 or 8."),
        ("model.heads=200", "model.heads = 200 does not divide model.width = 128: use 128."),
        ("model.widht=64", "model.widht is not a setting; did you mean model.width?"),
        (
            "training.batch_ramp_steps=10",
            "training.batch_ramp_steps = 10 needs training.gradient_accumulation above 1, to which the number of "
            "batches per update grows: set it, with smaller training.batch_tokens.",
        ),
        (
            "training.optimizer.betas=0.9",
            "training.optimizer.betas is not a setting; did you mean training.optimizer.beta2?",
        ),
        (
            "training.schedule.warmpu_steps=9",
            "training.schedule.warmpu_steps is not a setting; did you mean training.schedule.warmup_steps?",
        ),
        ("training.step=9", "training.step is not a setting; did you mean training.steps?"),
        ("training.optimizer.beta1=2", "training.optimizer.beta1 = 2 should be less than 1."),
        ("data.train.file=a.tsv", "data.train.file is not a setting; did you mean data.train.files?"),
        ("modle.width=64", "modle is not a setting; did you mean model?"),
        (
            "model.positions.sin=1",
            "model.positions.sin is not a setting; the settings here are kind, combine, width, layout.",
        ),
        (
            "model.positions.width=20",
            "model.positions.width = 20 is for concatenated vectors, but model.positions.combine = 'add': "
            "set combine to 'concatenate'.",
        ),
        (
            "model.positions={combine='concatenate', width=128}",
            "model.positions.width = 128 leaves no unit of model.width = 128 to the embeddings: "
            "use a smaller model.positions.width, or combine = 'add'.",
        ),
        (
            "model.positions.combine=concatenate",
            "model.tie_output = True needs embeddings of model.width = 128, but with "
            "model.positions.combine = 'concatenate' they have 96 units: set model.tie_output = false.",
        ),
        (
            "model.positions={kind='syntax', fusion='nonlinear', sinusoidal=false}",
            "model.positions.fusion = 'nonlinear' merges sinusoids and depths, but model.positions.sinusoidal = false: "
            "set it to true, or fusion to 'add'.",
        ),
        (
            "model.positions={kind='syntax', relation='tree'}",
            "model.positions.relation = 'tree' should be 'path' or 'edge'.",
        ),
        ("model.layers=-1", "model.layers = -1 should be greater than 0."),
        ("model.layers=0", "model.layers = 0 should be greater than 0."),
        ("model.layers=two", "model.layers = 'two' should be a whole number."),
        ("model.layers=2.5", "model.layers = 2.5 should be a whole number."),
        ("model.layers=true", "model.layers = True should be a whole number."),
        ("model.residual=1", "model.residual = 1 should be true or false."),
        ("model.vocab_size=0", "model.vocab_size = 0 should be greater than 0."),
        ("model.dropout=1", "model.dropout = 1 should be less than 1."),
        ("model.feed_forward=-1", "model.feed_forward = -1 should be greater than or equal to 0."),
        (
            "model.activation=gleu",
            "model.activation = 'gleu' should be 'relu', 'relu2', 'gelu', 'gelu-tanh', 'swish', 'swiglu', 'geglu' or "
            "'geglu-tanh' (did you mean gelu?).",
        ),
        (
            "model.positions=learnt",
            "model.positions.kind = 'learnt' should be 'alibi', 'buckets', 'learned', 'none', 'relative', 'rotary', "
            "'sinusoidal' or 'syntax' (did you mean learned?).",
        ),
        (
            'model={key_width=5, positions="rotary"}',
            "model.positions = 'rotary' rotates pairs of entries, but model.key_width = 5 is odd: "
            "set model.key_width to an even number.",
        ),
        (
            "model.positions={kind='relative', max_distance=0}",
            "model.positions.max_distance = 0 should be greater than 0.",
        ),
        (
            "model.positions={kind='syntax', depth=false, distance=false}",
            "model.positions.distance = False together with depth = false leaves the tree unused: "
            "set one of the two to true.",
        ),
        ("model.positions={kind='syntax', max_depth=0}", "model.positions.max_depth = 0 should be greater than 0."),
        ("model.positions={kind='rotary', base=1}", "model.positions.base = 1 should be greater than 1."),
        (
            "model.kind=decoder",
            "model.kind = 'decoder' should be 'encoder-decoder', 'decoder-only', 'encoder-only', "
            "'recurrent-encoder-decoder', 'recurrent-language-model' or 'bidirectional-language-model' "
            "(did you mean decoder-only?).",
        ),
        (
            "model.attention=linear",
            "model.attention.kind = 'linear' should be 'bigbird', 'full', 'linformer' or 'window'.",
        ),
        (
            'model.attention={kind="bigbird", window_blocks=4}',
            "model.attention.window_blocks = 4 should be odd, so that the window has a center: use 3 or 5.",
        ),
        (
            "model.positions.none=1",
            "model.positions.none is not a setting; the settings here are kind, combine, width, layout.",
        ),
        ("model.width=16777213", "model.heads = 4 does not divide model.width = 16777213: use 1."),
        ("model.width=10000000000", "model.width = 10000000000 should be less than or equal to 16777216."),
        ("model.layers=100000", "model.layers = 100000 should be less than or equal to 1000."),
        ("model.norm_epsilon=inf", "model.norm_epsilon = inf should be a finite number."),
        ("model.dropout=nan", "model.dropout = nan should be a finite number."),
        ("tokens.pad=-5", "tokens.pad = -5 should be greater than or equal to 0."),
        ("tokens.end=99999", "tokens.end = 99999 is past the last token of model.vocab_size = 10000."),
        ("model.vocab_size=3", "tokens.end = 3 is past the last token of model.vocab_size = 3."),
        ("model.feed_forward=99999999", "model.feed_forward = 99999999 should be less than or equal to 16777216."),
        ("model=3", "model = 3 should be a table of settings."),
        (
            "training.parameter_groups.head={role='head', learning_rat=2}",
            "training.parameter_groups.head.learning_rat is not a setting; did you mean "
            "training.parameter_groups.head.learning_rate_multiplier?",
        ),
        (
            "training.parameter_groups.head={role='head', optimizer='adm'}",
            "training.parameter_groups.head.optimizer.kind = 'adm' should be 'adam', 'adamw' or 'muon' "
            "(did you mean adam?).",
        ),
        ("training.parameter_groups.head=3", "training.parameter_groups.head = 3 should be a table of settings."),
        (
            "training.parameter_groups.a!={role='head'}",
            "training.parameter_groups.a!: the name 'a!' should match ^[\\w-]+$.",
        ),
        ("model.positions=3", "model.positions = 3 should be a table of settings."),
        (
            "model.target_vocab_size=9",
            "model.target_vocab_size = 9 differs from model.vocab_size = 10000: set model.share_embeddings = false.",
        ),
    ],
)
def test_invalid_setting_is_an_error(setting: str, message: str) -> None:
    assert error_message("tiny", setting) == f"--set {setting}: {message}"


@pytest.mark.parametrize("setting", ["model.kind={}", "model.kind.x=3", "model.kind=[1]", "model.layers=" + "9" * 5000])
def test_malformed_values_are_errors(setting: str) -> None:
    assert error_message("tiny", setting).startswith("--set ")


def test_unknown_setting_with_the_name_of_a_variant() -> None:
    start = "--set model.none=1: model.none is not a setting; the settings here are kind, vocab_size, width, "
    assert error_message("tiny", "model.none=1").startswith(start)


def test_syntax_positions_need_a_translator() -> None:
    message = (
        "model.positions.kind = 'syntax' needs a parsed source sentence, which only a translator has: "
        "use model.kind = 'encoder-decoder', or other positions."
    )
    assert error_message("gpt-char", "model.positions=syntax") == f"--set model.positions=syntax: {message}"
    kind = "model.kind=encoder-only"
    assert error_message("tiny", "model.positions=syntax", kind) == f"--set {kind}: {message}"


def test_linformer_has_no_tree_distances() -> None:
    linformer = "model.attention=linformer"
    assert error_message("tiny", "model.positions=syntax", linformer) == (
        f"--set {linformer}: model.attention.kind = 'linformer' attends to mixtures of positions, which have no "
        "distance in a tree: set model.positions.distance = false, or use other attention."
    )
    assert load_config(
        "tiny", ["model.positions=syntax", "model.positions.distance=false", linformer]
    ).model.needs_parses


def test_bpe_dropout_excludes_syntax_positions() -> None:
    dropout = "tokenizer.dropout=0.1"
    assert error_message("tiny", "model.positions=syntax", dropout) == (
        f"--set {dropout}: tokenizer.dropout = 0.1 splits words into different tokens each time, but "
        "model.positions.kind = 'syntax' stores positions for the usual ones only: set tokenizer.dropout = 0."
    )


@pytest.mark.parametrize("kind", ["linformer", "bigbird"])
def test_language_models_need_causal_attention(kind: str) -> None:
    assert error_message("gpt-small", f"model.attention={kind}") == (
        f"--set model.attention={kind}: model.attention.kind = '{kind}' attends to later positions, which a "
        "decoder must not: "
        "use 'window' or 'full'."
    )


@pytest.mark.parametrize("kind", ["alibi", "relative"])
def test_linformer_excludes_distance_based_positions(kind: str) -> None:
    message = (
        "model.attention.kind = 'linformer' attends to mixtures of positions, but "
        f"model.positions.kind = '{kind}' needs the distance between positions: "
        "use sinusoidal, learned, rotary or none."
    )
    setting = "model.attention=linformer"
    assert error_message("tiny", f"model.positions={kind}", setting) == f"--set {setting}: {message}"
    setting = f"model.positions={kind}"
    assert error_message("tiny", "model.attention={kind='linformer', max_length=9}", setting).endswith(message)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "none"])
def test_linformer_with_other_positions(positions: str) -> None:
    load_config("tiny", [f"model.positions={positions}", "model.attention=linformer"])


@pytest.mark.parametrize("setting", ["model.layers", "=3", "model..layers=3"])
def test_set_without_a_value_is_an_error(setting: str) -> None:
    assert error_message("tiny", setting) == f"--set {setting}: should look like model.layers=3."


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("[model]\nwidth = 100\nheads = 7\n", 3, "model.heads = 7 does not divide model.width = 100: use 5 or 10."),
        ("model.layers = 0\n", 1, "model.layers = 0 should be greater than 0."),
        ("\nmodel = { layers = 0 }\n", 2, "model.layers = 0 should be greater than 0."),
        (
            "[model.positions]\nkind = 'learned'\nmax_length = 0\n",
            3,
            "model.positions.max_length = 0 should be greater than 0.",
        ),
        ("# \u2028\n[modle]\nlayers = 2\n", 2, "modle is not a setting; did you mean model?"),
        ("[model]\nlayers = 2\nlayer = 3\n", 3, "model.layer is not a setting; did you mean model.layers?"),
        (
            "[model]\ndropout = 0\n[training]\nsteps = 9\nrdrop = 1\nseed = 3\n",
            5,
            "training.rdrop = 1 compares two passes that differ by dropout, but there is none: set model.dropout "
            "above 0.",
        ),
    ],
)
def test_error_in_a_file_has_its_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    file = tmp_path / "my.toml"
    file.write_text(text)
    assert error_message(file) == f"{file}:{line}: {message}"


def test_error_names_the_source_of_the_invalid_value(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('preset = "tiny"\n[model]\nwidth = 96\n')
    assert error_message(file, "model.heads=5").startswith("--set model.heads=5: ")
    frozen = error_message(file, "training.freeze_encoder=true", "training.seed=3")
    assert frozen.startswith(
        "--set training.freeze_encoder=true: training.freeze_encoder = True needs training.start_from"
    )
    file.write_text('preset = "tiny"\n[model]\nwidth = 90\n')
    assert error_message(file) == f"{file}:3: model.heads = 4 does not divide model.width = 90: use 3 or 5."


def test_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_bytes(b"\xef\xbb\xbf[model]\r\nlayers = 2\r\nheads = 7\r\n")
    assert error_message(file) == f"{file}:3: model.heads = 7 does not divide model.width = 512: use 4 or 8."


def test_unknown_preset_is_an_error(tmp_path: Path) -> None:
    known = (
        "the presets are bahdanau, gpt-char, gpt-small, llama-tiny, lstm-lm, luong, modern-small, paper-base, "
        "paper-big, phrasebook, seq2seq, small, tiny."
    )
    assert error_message("tinny") == f"'tinny' is neither a preset nor a TOML file (did you mean tiny?); {known}"
    assert error_message("") == f"'' is neither a preset nor a TOML file; {known}"
    file = tmp_path / "my.toml"
    file.write_text('preset = "paper-bas"\n')
    assert error_message(file) == f"{file}: preset = 'paper-bas' is not a preset (did you mean paper-base?); {known}"


def test_unreadable_files_are_errors(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    remedy = "pass a preset or the path of a TOML file."
    assert error_message(missing) == f"{missing}: cannot be read (No such file or directory); {remedy}"
    assert error_message(tmp_path) == f"{tmp_path}: cannot be read (Is a directory); {remedy}"
    broken = tmp_path / "broken.toml"
    broken.write_text("[model\n")
    assert error_message(broken).startswith(f"{broken}: is not valid TOML: ")
    assert "line 1" in error_message(broken)
    broken.write_text("a=" + "[" * 5000 + "]" * 5000)
    problem = "a number is too long or tables are too deep"
    assert error_message(broken) == f"{broken}: is not a valid config file: {problem}."
    broken.write_bytes(b"# caf\xe9\n")
    assert error_message(broken) == f"{broken}: is not UTF-8 text (byte 5); save it as UTF-8."
