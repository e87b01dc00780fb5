"""`regard export`: exported models run with the printed example; error messages."""

from pathlib import Path

import pytest

from commands import regard
from random_models import SMALL, random_network, saved, words
from regard.cli import app
from regard.config import (
    Config,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    EncoderOnlyConfig,
    LearnedPositionsConfig,
    ModelConfig,
    RotaryPositionsConfig,
)
from regard.errors import ModelError
from regard.models import save


@pytest.fixture(autouse=True)
def _working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Terminal:
    """Runs commands and Python code in one process, so that torch and transformers are imported once."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def export(self, *arguments: str) -> str:
        app(["export", *arguments], standalone_mode=False)
        return self._capsys.readouterr().out

    def python(self, printed: str) -> str:
        """Run the Python code that a command printed, and return its output."""
        exec("\n".join(line.removeprefix("    ") for line in printed.splitlines() if line.startswith("    ")), {})
        return self._capsys.readouterr().out


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys)


MODELS: dict[str, ModelConfig] = {
    "a translator": EncoderDecoderConfig(**SMALL),
    "a language model": DecoderOnlyConfig(**SMALL, norm_order="pre"),
    "a language model of few positions": DecoderOnlyConfig(
        **SMALL, norm_order="pre", positions=LearnedPositionsConfig(max_length=20)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("to", ["ctranslate2", "huggingface"])
def test_printed_example_runs(to: str, model: ModelConfig, terminal: Terminal) -> None:
    saved(Path("model"), model)
    printed = terminal.export("model", "--to", to)
    assert Path(f"model-{to}").is_dir()
    assert terminal.python(printed).strip()


def test_gguf_files_are_exported_and_imported(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    saved(
        Path("model"),
        DecoderOnlyConfig(
            **SMALL,
            norm="rms",
            norm_order="pre",
            activation="swiglu",
            positions=RotaryPositionsConfig(),
            scale_embeddings=False,
        ),
    )
    printed = terminal.export("model", "--to", "gguf", "--quantization", "F32")
    assert "model-gguf/model.gguf: for llama.cpp, F32. In Python:\n" in printed
    app(["import", "model-gguf/model.gguf"], standalone_mode=False)
    assert " parameters from model-gguf/model.gguf to model-regard\n" in capsys.readouterr().out
    assert Path("model-regard", "model.safetensors").exists()


def test_printed_example_of_a_text_encoder_runs(terminal: Terminal) -> None:
    saved(Path("model"), EncoderOnlyConfig(**SMALL, embedding_norm=True))
    printed = terminal.export("model", "--to", "huggingface", "--out", "new/bert")
    assert printed.startswith("new/bert: for transformers, BertModel. In Python:\n\n    from transformers import")
    assert terminal.python(printed).startswith("tensor(")


@pytest.mark.slow
@pytest.mark.parametrize("to", ["ctranslate2", "huggingface"])
@pytest.mark.parametrize("tokenizers", [[], ["tokenizer.json", "target_tokenizer.json"]], ids=["none", "two"])
def test_printed_example_with_no_tokenizer_or_two_runs(tokenizers: list[str], to: str, terminal: Terminal) -> None:
    config = Config(model=EncoderDecoderConfig(**SMALL))
    files = {name: words(prefix=name[0]).to_str().encode() for name in tokenizers}
    save("model", random_network(config.model), config, extra_files=files)
    printed = terminal.export("model", "--to", to)
    assert bool(terminal.python(printed).strip()) == bool(tokenizers)
    assert ("note: " in printed) == (to == "huggingface")


def test_run_folder_exports_its_best_model(terminal: Terminal) -> None:
    saved(Path("en-it", "best"), EncoderDecoderConfig(**SMALL))
    assert terminal.export("en-it", "--to", "ctranslate2").splitlines()[0] == (
        "en-it-ctranslate2: for CTranslate2, int8. In Python:"
    )
    with pytest.raises(ModelError) as refused:
        terminal.export("en-it/best", "--to", "ctranslate2")
    assert str(refused.value) == "en-it-ctranslate2: already exists; choose another name or remove it first."


def test_quantization_is_int8_by_default(terminal: Terminal) -> None:
    saved(Path("model"), EncoderDecoderConfig(**{**SMALL, "positions": LearnedPositionsConfig(max_length=8)}))
    terminal.export("model", "--to", "ctranslate2", "--out", "small")
    printed = terminal.export("model", "--to", "ctranslate2", "--out", "large", "--quantization", "float32")
    assert printed.splitlines()[0] == "large: for CTranslate2, float32. In Python:"
    small, large = (Path(name, "model.bin").stat().st_size for name in ("small", "large"))
    assert 2 * small < large


ERRORS: dict[str, tuple[list[str], int, str]] = {
    "no folder": (
        ["nowhere", "--to", "ctranslate2"],
        3,
        "regard: nowhere: does not exist; give the path of a model folder, or of a run.\n",
    ),
    "no model": (
        ["empty", "--to", "huggingface"],
        3,
        "regard: empty/config.json: is missing, so empty is not a complete model folder.\n",
    ),
    "quantised for transformers": (
        ["model", "--to", "huggingface", "--quantization", "int8"],
        2,
        "regard: quantization = int8: is for the format ctranslate2; remove it.\n",
    ),
    "what cannot be held": (
        ["model", "--to", "huggingface"],
        3,
        "regard: model: cannot be exported to Hugging Face, because GPT-2 normalizes before each sublayer, and this "
        "network after; export it to ctranslate2.\n",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", ERRORS)
def test_errors_write_nothing(case: str, tmp_path: Path) -> None:
    saved(Path("model"), DecoderOnlyConfig(**SMALL))
    Path("empty").mkdir()
    arguments, code, message = ERRORS[case]
    done = regard("export", *arguments)
    assert (done.code, done.out, done.err) == (code, "", message)
    assert {path.name for path in tmp_path.iterdir()} == {"model", "empty"}


def test_unknown_format_lists_the_formats() -> None:
    done = regard("export", "model", "--to", "onnx")
    assert done.code == 2
    assert "ctranslate2" in done.err
    assert "huggingface" in done.err
