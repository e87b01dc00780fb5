"""CTranslate2 in float32 gives the results of the torch engine; conversions; the choice of the engine."""

import errno
import logging
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from ctranslate2.specs import TransformerSpec

import regard
from random_models import SMALL, random_network, saved, sources, words
from regard.config import Config, DecoderOnlyConfig, EncoderDecoderConfig
from regard.decoding.engines import SearchRequest
from regard.decoding.engines import ctranslate2 as ctranslate2_engine
from regard.decoding.engines.conversion import converted_folder, model_fingerprint
from regard.decoding.options import OutputConstraints, SamplingOptions, SearchOptions, TranslationOptions
from regard.decoding.results import Alternative
from regard.errors import ConfigError, ModelError
from regard.interop import EXPORTERS
from regard.models import save
from regard.models.folder_files import read_config
from regard.registry import EngineName

LINES = ["w4 w5 w6", "w9", "", "w20 w21 w22 w23 w24 w25 w26", "w7 w7", "w12 w28 w4 w5 w6"]
ENGINES: tuple[EngineName, ...] = ("torch", "ctranslate2")
PAIRS = [(1, 0.6), (4, 0.0), (4, 3.0)]  # a beam and a length penalty


@pytest.mark.slow
@pytest.mark.parametrize(
    "search",
    [
        SearchOptions(beam=1),
        SearchOptions(patience=1.0),
        SearchOptions(patience=2.5, length_penalty=1.2, n_best=4),
        SearchOptions(beam=6, patience=1.0, length_penalty=0.0, constraints=OutputConstraints(max_tokens=9)),
        SearchOptions(
            patience=1.0,
            constraints=OutputConstraints(min_tokens=5, max_tokens=12, suppressed_sequences=((7,), (8, 9))),
        ),
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_engines_give_the_same_translations(search: SearchOptions, seed: int, tmp_path: Path) -> None:
    saved(tmp_path / "model", EncoderDecoderConfig(**SMALL), seed)
    model = regard.load(tmp_path / "model")
    lines = [" ".join(f"w{n}" for n in ids) for ids in sources(count=12, seed=seed)]
    token_scores = not search.constraints.suppressed_sequences
    options = TranslationOptions(search, token_scores=token_scores, attention=True)
    expected, actual = (
        model.translator(options, engine=engine, precision="float32").translate(lines, options) for engine in ENGINES
    )
    for line, other_line in zip(expected, actual, strict=True):
        alternatives, others = (translation.sentences[0].alternatives for translation in (line, other_line))
        assert [alternative.tokens for alternative in alternatives] == [other.tokens for other in others]
        for alternative, other in zip(alternatives, others, strict=True):
            assert_same_scores(alternative, other, token_scores=token_scores)


def assert_same_scores(expected: Alternative, actual: Alternative, *, token_scores: bool) -> None:
    # for a hypothesis cut at its own limit inside a longer batch, the score of the first token is not known exactly
    assert expected.score == pytest.approx(actual.score, abs=1e-3 if expected.ended else 1e-2)
    if token_scores:
        assert expected.token_scores is not None
        assert actual.token_scores is not None
        first = 0 if expected.ended else 1
        assert expected.token_scores[first:] == pytest.approx(actual.token_scores[first:], abs=1e-3)
    torch.testing.assert_close(torch.tensor(expected.attention), torch.tensor(actual.attention), atol=1e-3, rtol=0)


def test_engines_give_the_same_continuations(writer: Path) -> None:
    model = regard.load(writer)
    prompts = ["w4 w5", "w9 w9 w9 w9 w10", ""]
    expected, actual = (
        model.generate_detailed(prompts, temperature=0.0, max_tokens=12, engine=engine, precision="float32")
        for engine in ENGINES
    )
    for result, other in zip(expected, actual, strict=True):
        assert (result.text, result.tokens, result.ended) == (other.text, other.tokens, other.ended)
        assert result.log_probability == pytest.approx(other.log_probability, abs=1e-3)


@pytest.mark.parametrize("engine", ENGINES)
def test_top_k_may_exceed_the_vocabulary(writer: Path, engine: EngineName) -> None:
    model = regard.load(writer)
    assert model.generate("w4", top_k=10**6, min_tokens=4, max_tokens=4, engine=engine, seed=None)


def test_worker_threads_sample_different_texts(writer: Path) -> None:
    """At this temperature the probabilities are those of a die, and equal random numbers would give equal texts."""
    start = ctranslate2_engine.ctranslate2_sessions(writer, read_config(writer), "float32", threads=4)
    sampling = SamplingOptions(temperature=100, constraints=OutputConstraints(min_tokens=12, max_tokens=12))
    prompts = [[5] * length for length in range(1, 13)]  # one job each, as their lengths differ
    session = start(prompts, list(range(len(prompts))), sampling)
    texts: list[list[int]] = [[] for _ in prompts]
    while session.active:
        for token in session.step():
            texts[token.row].append(token.token)
    assert len({tuple(text) for text in texts}) == len(prompts)


def test_no_worker_has_a_callback_after_a_session(writer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that deleted it while Python exits would abort the process."""
    callbacks: list[weakref.ref[ctranslate2_engine.TokenCallback]] = []

    def queue_tokens(*arguments: Any, original: Any = ctranslate2_engine._queue_tokens) -> Any:
        callback = original(*arguments)
        callbacks.append(weakref.ref(callback))
        return callback

    monkeypatch.setattr(ctranslate2_engine, "_queue_tokens", queue_tokens)
    model = regard.load(writer)
    for _ in range(40):
        model.generate("w4", max_tokens=2, engine="ctranslate2", precision="float32")
        assert callbacks[-1]() is None
    chunks = model.stream("w4", max_tokens=8, min_tokens=8, engine="ctranslate2", precision="float32")
    assert isinstance(chunks, Generator)
    next(chunks)
    chunks.close()
    assert callbacks[-1]() is None


@pytest.mark.parametrize(
    "search",
    [
        SearchOptions(beam=1),
        SearchOptions(beam=1, constraints=OutputConstraints(max_tokens=3)),
        SearchOptions(beam=4),
        SearchOptions(beam=4, patience=1.0, length_penalty=2.0),
        SearchOptions(beam=3, length_penalty=0.0, constraints=OutputConstraints(min_tokens=2, max_tokens=4)),
    ],
)
@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("engine", ENGINES)
def test_the_best_ids_are_those_of_the_first_hypotheses(
    engine: EngineName, count: int, search: SearchOptions, translator: Path
) -> None:
    options = TranslationOptions(search)
    searching = regard.load(translator).translator(options, engine=engine, precision="float32").engine
    request = SearchRequest(sources(count=count), search, token_scores=False)
    assert searching.best_ids(request) == [found[0].ids for found in searching.search(request)]
    assert searching.best_ids(SearchRequest([], search)) == []


def test_a_sentence_has_its_own_limit_in_a_batch(translator: Path) -> None:
    """The maximum length of a batch is that of its longest sentence, which must not change the others."""
    model, rows = regard.load(translator), sources(count=24, seed=3)
    lines = [" ".join(f"w{n}" for n in ids) for ids in rows]
    for beam in (1, 4):
        together = model.translate(lines, beam=beam, engine="ctranslate2", precision="float32")
        alone = [model.translate(line, beam=beam, engine="ctranslate2", precision="float32") for line in lines]
        assert together == alone


def test_arguments_are_kept_for_the_same_options_only(translator: Path) -> None:
    options = [TranslationOptions(SearchOptions(beam, length_penalty), details=False) for beam, length_penalty in PAIRS]
    model = regard.load(translator)
    expected = [
        [found.text for found in regard.load(translator).translator(chosen).translate(LINES, chosen)]
        for chosen in options
    ]
    shared = model.translator(options[0])
    for chosen, texts in [*zip(options, expected, strict=True)] * 2:
        assert [found.text for found in shared.translate(LINES, chosen)] == texts
    assert len({tuple(texts) for texts in expected}) > 1


@pytest.mark.parametrize("beam", [1, 2, 3, 7])
@pytest.mark.parametrize("patience", [5e-324, 0.1, 0.3])
def test_any_small_patience_works(translator: Path, beam: int, patience: float) -> None:
    assert regard.load(translator).translate("w4 w5", beam=beam, patience=patience)


def test_int8_translates(translator: Path) -> None:
    translations = regard.load(translator).translate(LINES)
    assert len(translations) == len(LINES)
    assert translations[2] == ""
    assert all(text for n, text in enumerate(translations) if n != 2)


@pytest.mark.slow
def test_ctranslate2_does_not_import_torch_once_a_model_is_converted(translator: Path) -> None:
    regard.load(translator).translate(LINES)
    program = (
        "import sys, regard\n"
        f"print(regard.load({str(translator)!r}).translate(['w4 w5']))\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_conversion_is_cached_and_renewed_when_the_weights_change(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    saved(folder, EncoderDecoderConfig(**SMALL))
    converted = converted_folder(folder, "int8")
    assert converted == folder / "ctranslate2" / f"int8-{model_fingerprint(folder)}"
    modified = (converted / "model.bin").stat().st_mtime_ns
    assert converted_folder(folder, "int8") == converted
    assert (converted / "model.bin").stat().st_mtime_ns == modified
    before = regard.load(folder).translate(LINES)
    saved(tmp_path / "other", EncoderDecoderConfig(**SMALL), seed=1)
    os.replace(tmp_path / "other" / "model.safetensors", folder / "model.safetensors")
    assert converted_folder(folder, "int8") != converted
    assert not converted.exists()
    assert regard.load(folder).translate(LINES) != before


def test_a_read_only_model_folder_is_converted_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: False)
    folder = tmp_path / "read-only"
    saved(folder, EncoderDecoderConfig(**SMALL), seed=5)
    assert converted_folder(folder, "int8").parent == tmp_path / "regard" / "ctranslate2"


def test_a_model_folder_on_a_full_disk_is_converted_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    saved(folder, EncoderDecoderConfig(**SMALL), seed=5)
    fill_disks(monkeypatch, folder)
    converted = converted_folder(folder, "int8")
    assert converted.parent == tmp_path / "cache" / "regard" / "ctranslate2"
    assert list((folder / "ctranslate2").iterdir()) == []
    assert converted_folder(folder, "int8") == converted
    fill_disks(monkeypatch, folder, tmp_path / "cache")
    name = f"float32-{model_fingerprint(folder)}"
    with pytest.raises(ModelError) as error:
        converted_folder(folder, "float32")
    assert str(error.value).startswith(f"{converted.parent / name}: ")
    assert "No space left on device" in str(error.value)


def fill_disks(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Make conversions of models in these folders fail for lack of space."""
    save = TransformerSpec.save

    def full(self: Any, out: str) -> None:
        if any(Path(out).is_relative_to(folder) for folder in folders):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(self, out)

    monkeypatch.setattr(TransformerSpec, "save", full)


@pytest.mark.parametrize("name", ["model.bin", "config.json", "shared_vocabulary.json"])
@pytest.mark.parametrize("content", [None, b"", b"{}", b"[1]", b'{"unk_token": 5}', b"\xff\x00garbage" * 20])
def test_a_damaged_conversion_is_made_again(name: str, content: bytes | None, tmp_path: Path) -> None:
    saved(tmp_path / "model", EncoderDecoderConfig(**SMALL))
    expected = regard.load(tmp_path / "model").translate(LINES)
    path = converted_folder(tmp_path / "model", "int8") / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert regard.load(tmp_path / "model").translate(LINES) == expected


@pytest.mark.parametrize("engine_kind", ["translator", "writer"])
def test_flipped_bytes_in_a_conversion_are_noticed(
    engine_kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = EncoderDecoderConfig(**SMALL) if engine_kind == "translator" else DecoderOnlyConfig(**SMALL)
    saved(tmp_path / "model", config)

    def output() -> object:
        model = regard.load(tmp_path / "model")
        if engine_kind == "translator":
            return model.translate(LINES, engine="ctranslate2")
        return model.generate("w4 w5", temperature=0.0, engine="ctranslate2")

    expected, weights = output(), converted_folder(tmp_path / "model", "int8") / "model.bin"
    original = weights.read_bytes()
    for position in range(len(original) // 2, len(original), len(original) // 16):
        damaged = bytearray(original)
        damaged[position] ^= 0x40
        weights.write_bytes(damaged)
        caplog.clear()
        assert output() == expected
        assert weights.read_bytes() == original
        assert [message.partition(": ")[2] for message in caplog.messages if "converted again" in message] == [
            "is damaged, or was written by an older version; it is converted again."
        ]


@pytest.mark.parametrize("change", ["no checksums", "damaged checksums", "extra file", "pipe"])
def test_a_conversion_that_does_not_match_its_checksums_is_made_again(change: str, tmp_path: Path) -> None:
    saved(tmp_path / "model", EncoderDecoderConfig(**SMALL))
    folder = converted_folder(tmp_path / "model", "int8")
    original = {path.name: path.read_bytes() for path in folder.iterdir()}
    if change == "no checksums":
        (folder / "checksums.json").unlink()
    elif change == "damaged checksums":
        (folder / "checksums.json").write_text('{"model.bin": 5}')
    elif change == "extra file":
        (folder / "source_vocabulary.json").write_text("[]")
    else:
        (folder / "config.json").unlink()
        os.mkfifo(folder / "config.json")
    assert converted_folder(tmp_path / "model", "int8") == folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == original


def test_a_conversion_that_ctranslate2_never_loads_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("unsupported model binary version")

    saved(tmp_path / "model", EncoderDecoderConfig(**SMALL))
    monkeypatch.setattr("regard.decoding.engines.conversion._load", fail)
    with pytest.raises(
        ModelError, match=r"CTranslate2 cannot load it \(unsupported model binary version\); use --engine"
    ):
        regard.load(tmp_path / "model").translate("w4", engine="ctranslate2")


def logged(caplog: pytest.LogCaptureFixture, call: Callable[[], object]) -> str:
    caplog.clear()
    with caplog.at_level(logging.INFO, "regard"):
        call()
    return caplog.messages[-1]


@pytest.mark.slow
def test_the_choice_of_an_engine_is_logged_with_its_reason(
    translator: Path, writer: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    model, gpt = regard.load(translator), regard.load(writer)
    ensemble = regard.load(translator, translator)
    saved(tmp_path / "odd", EncoderDecoderConfig(**{**SMALL, "feed_forward": 0}))
    odd = regard.load(tmp_path / "odd")
    ctranslate2 = "engine: ctranslate2, which supports the model and the options."
    torch_because = "engine: torch, because "
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: model.translate("w4"), ctranslate2),
        (lambda: model.translate("w4", engine="torch"), "engine: torch, as requested."),
        (lambda: model.translate("w4", prefix="w5"), f"{torch_because}a prefix is set."),
        (lambda: model.translate("w4", coverage_penalty=1.0), f"{torch_because}a coverage penalty is set."),
        (
            lambda: model.translate_detailed("w4", min_tokens=3, token_scores=True),
            f"{torch_because}token scores are requested with a minimum length or suppressed sequences.",
        ),
        (lambda: model.translate("w4", suppress=["w5"]), f"{torch_because}words are suppressed."),
        (
            lambda: model.translate("w4", logits_processors=["special-tokens"]),
            f"{torch_because}logits processors are set.",
        ),
        (lambda: ensemble.translate("w4"), f"{torch_because}CTranslate2 does not support ensembles."),
        (
            lambda: odd.translate("w4"),
            f"{torch_because}CTranslate2 needs feed-forward layers, and the network has none.",
        ),
        (
            lambda: gpt.generate("w4", seed=0),
            f"{torch_because}a seed is set, and CTranslate2's samples are not reproducible.",
        ),
        (lambda: gpt.generate("w4", seed=None), f"{torch_because}the text may outgrow the model's context window."),
        (lambda: gpt.generate("w4", max_tokens=9, seed=None), ctranslate2),
        (lambda: gpt.generate("w4", max_tokens=9, seed=None, min_p=0.1), f"{torch_because}CTranslate2 has no min_p."),
        (
            lambda: gpt.generate("w4", max_tokens=9, seed=None, top_p=0.9),
            f"{torch_because}CTranslate2 supports top_p only with a top_k of at most 1,024.",
        ),
    ]
    for call, expected in calls:
        assert logged(caplog, call) == expected


def test_an_engine_that_does_not_support_the_options_is_refused(translator: Path) -> None:
    model = regard.load(translator)
    with pytest.raises(ConfigError) as error:
        model.translate("w4", prefix="w5", engine="ctranslate2")
    assert str(error.value) == (
        "the engine ctranslate2 cannot be used because a prefix is set; use the engine torch, or auto."
    )
    with pytest.raises(ConfigError) as error:
        model.translate("w4", engine="onnx")  # type: ignore[call-overload]
    assert str(error.value) == "there is no engine 'onnx'; the engines are auto, torch and ctranslate2."


@pytest.mark.parametrize("engine", ENGINES)
def test_a_fast_search_stops_after_as_many_hypotheses_as_the_beam_has(engine: EngineName, translator: Path) -> None:
    model = regard.load(translator)
    texts = ["w5 w6", "w7 w8 w9 w10", "w4"]
    fast = model.translate(texts, search="fast", max_tokens=12, engine=engine)
    assert fast == model.translate(texts, patience=1.0, max_tokens=12, engine=engine)
    with pytest.raises(ConfigError, match="search is 'fast', which is a patience of 1, but patience is 2; remove one"):
        model.translate(texts, search="fast", patience=2.0)
    with pytest.raises(ConfigError, match="search is 'quick'; it should be exact or fast"):
        model.translate(texts, search="quick")  # type: ignore[call-overload]


def outlier_writer(folder: Path) -> Path:
    """A language model whose states have one large unit, beside which int8 loses the others."""
    model = DecoderOnlyConfig(**SMALL, norm_order="pre", scale_embeddings=False, tie_output=False)
    network = random_network(model)
    with torch.no_grad():
        network.get_parameter("decoder.norm.weight")[0] = 3000.0
        network.get_parameter("output.weight")[:, 0] = 0.0
    save(folder, network, Config(model=model), extra_files={"tokenizer.json": words().to_str().encode()})
    return folder


def test_a_language_model_that_int8_harms_is_used_in_float32_with_one_notice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = outlier_writer(tmp_path / "model")
    expected = regard.load(folder).generate("w4 w5", temperature=0.0, engine="torch")
    assert regard.load(folder).generate("w4 w5", temperature=0.0, engine="ctranslate2") == expected
    (message,) = caplog.messages
    assert message.startswith(f"{folder}: in int8 the next token's probabilities diverge by ")
    assert message.endswith(", so float32 is used.")
    caplog.clear()
    assert regard.load(folder).generate("w4 w5", temperature=0.0, engine="ctranslate2") == expected
    assert not caplog.messages
    names = sorted(path.name.split("-")[0] for path in (folder / "ctranslate2").iterdir() if path.name[0] != ".")
    assert names == ["float32", "quality"]


def test_a_language_model_that_int8_does_not_harm_stays_in_int8(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved(tmp_path / "model", DecoderOnlyConfig(**SMALL, norm_order="pre"))
    model = regard.load(tmp_path / "model")
    model.generate("w4 w5", temperature=0.0, engine="ctranslate2")
    assert not caplog.messages
    names = {path.name.split("-")[0] for path in (tmp_path / "model" / "ctranslate2").iterdir() if path.name[0] != "."}
    assert names == {"int8", "quality"}


@pytest.mark.parametrize("quantization", [None, "int8"])
def test_an_export_that_int8_harms_says_so(quantization: str | None, tmp_path: Path) -> None:
    report = EXPORTERS["ctranslate2"](outlier_writer(tmp_path / "model"), tmp_path / "out", quantization)
    assert report.kind == ("float32" if quantization is None else "int8")
    (note,) = report.notes
    assert "in int8 the next token's probabilities diverge by" in note
    assert "float32" in note
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out"]
    harmless = tmp_path / "harmless"
    saved(harmless, DecoderOnlyConfig(**SMALL, norm_order="pre"))
    assert EXPORTERS["ctranslate2"](harmless, tmp_path / "out2", quantization).kind == "int8"
