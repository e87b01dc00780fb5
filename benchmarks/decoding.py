"""Decoding speed of regard and other implementations: the same model, sentences and search.

    python benchmarks/decoding.py --model runs/demo                                  # and its own test sentences
    python benchmarks/decoding.py --model runs/en-de --input test.en --sentences 500 --rounds 3

The implementations take turns, round after round, each time in a fresh process; the tables have medians over the
rounds. All times include tokenization and detokenization; loading the model and a few warmup sentences come before the
clock starts. The other implementations load what `regard export` writes. `defaults` is CTranslate2 with its default
options; `best` is the fastest of the options tried: one single-threaded worker per core and batches of 16 to 64
sentences; `same patience` also waits for as many finished hypotheses as regard does. Speeds are in source tokens, which
are the same for all.

Whole-file: all sentences at once, in batches of similar length. One at a time: each is answered before the next.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from common import SPIN_COUNT, clock, print_markdown, run_in_process, with_spread

from regard.config import Config, DecoderOnlyConfig, LearnedPositionsConfig, TokenizerConfig
from regard.data.readers.builtin import builtin_documents, builtin_pairs
from regard.data.tokenizer import load_tokenizer, train_tokenizer
from regard.decoding.engines.ctranslate2 import DEFAULT_PATIENCE
from regard.decoding.options import (
    SearchOptions,
    TranslationOptions,
)

BEAMS = {"greedy": 1, "beam 4": 4}
BATCH_SIZE = 32
ENGINES = ("auto", "torch")
WARMUP = 4  # sentences, or tokens of a language model
GENERATED_TOKENS = 200
GPT = DecoderOnlyConfig(
    vocab_size=8_000,
    width=384,
    layers=6,
    heads=6,
    feed_forward=1536,
    activation="gelu-tanh",
    norm_order="pre",
    attention_bias=True,
    scale_embeddings=False,
    positions=LearnedPositionsConfig(max_length=512),
)
CORES = len(os.sched_getaffinity(0))
PROMPT = "The"
Translate = Callable[[Sequence[str]], list[str]]
Generate = Callable[[int], list[float]]  # generates this many tokens and returns the time of each


@dataclass(frozen=True)
class TranslationCase:
    """What is translated, and how."""

    model: str  # a model folder
    exported: str  # folder with its exports: ctranslate2, huggingface
    beam: int
    whole_file: bool  # or one sentence at a time
    sentences: list[str]


@dataclass(frozen=True)
class DecodingMeasurement:
    """Measurement of one implementation."""

    tokens: int
    seconds: float
    first_token_seconds: float = 0.0  # of language models


# --- translation ------------------------------------------------------------------------------------------------------


def regard_translator(case: TranslationCase, engine: Any, precision: Any, patience: float | None = None) -> Translate:
    """Return regard's translator."""
    import regard

    model = regard.load(case.model)
    search = SearchOptions(beam=case.beam, patience=patience)
    options = TranslationOptions(search, split_sentences=False, details=False)
    translator = model.translator(options, engine=engine, precision=precision)
    return lambda lines: [translation.text for translation in translator.translate(lines, options)]


def huggingface_translator(case: TranslationCase) -> Translate:
    """Return `generate` of transformers, in batches of similar length."""
    import torch
    from transformers import AutoTokenizer, MarianMTModel
    from transformers.utils import logging

    folder = f"{case.exported}/huggingface"
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    tokenizer, model = AutoTokenizer.from_pretrained(folder), MarianMTModel.from_pretrained(folder).eval()

    @torch.inference_mode()
    def translate(lines: Sequence[str]) -> list[str]:
        translations = [""] * len(lines)
        order = sorted(range(len(lines)), key=lambda n: len(lines[n]))
        for start in range(0, len(order), BATCH_SIZE):
            indices = order[start : start + BATCH_SIZE]
            batch = tokenizer([lines[n] for n in indices], return_tensors="pt", padding=True)
            ids = model.generate(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                num_beams=case.beam,
                max_new_tokens=batch["input_ids"].size(1) + 50,
                length_penalty=0.6,
            )
            for n, text in zip(indices, tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True):
                translations[n] = text
        return translations

    return translate


def ctranslate2_translator(case: TranslationCase, *, best: bool, patience: float = 1.0) -> Translate:
    """Return CTranslate2 called directly, with the same tokenizer."""
    import ctranslate2

    folder = f"{case.exported}/ctranslate2"
    threads = {"inter_threads": CORES, "intra_threads": 1} if best else {}
    translator = ctranslate2.Translator(folder, device="cpu", **threads)
    tokenizer = load_tokenizer(Path(folder) / "tokenizer.json")
    max_length = max(len(ids) for ids in tokenizer.encode_batch(case.sentences)) + 51
    options: dict[str, Any] = {"beam_size": case.beam, "max_decoding_length": max_length, "patience": patience}
    options |= {"length_penalty": 0.6} if case.beam > 1 else {}
    if best:
        options |= {"max_batch_size": BATCH_SIZE if case.beam == 1 else BATCH_SIZE // 2, "batch_type": "examples"}

    def translate(lines: Sequence[str]) -> list[str]:
        ids = tokenizer.encode_batch(lines)
        results = translator.translate_batch([tokenizer.ids_to_tokens(row) for row in ids], **options)
        return [tokenizer.decode_tokens(result.hypotheses[0]) for result in results]

    return translate


TRANSLATORS: dict[str, Callable[[TranslationCase], Translate]] = {
    "regard (auto: CTranslate2, int8)": lambda case: regard_translator(case, "auto", "int8"),
    "regard, search=fast": lambda case: regard_translator(case, "auto", "int8", patience=1.0),
    "regard (CTranslate2, float32)": lambda case: regard_translator(case, "ctranslate2", "float32"),
    "regard (torch, float32)": lambda case: regard_translator(case, "torch", "float32"),
    "CTranslate2 int8, defaults": lambda case: ctranslate2_translator(case, best=False),
    "CTranslate2 int8, best": lambda case: ctranslate2_translator(case, best=True),
    "CTranslate2 int8, best, same patience": lambda case: ctranslate2_translator(
        case, best=True, patience=DEFAULT_PATIENCE
    ),
    "HF generate, float32": huggingface_translator,
}


def measure_translation(case: TranslationCase, name: str) -> DecodingMeasurement:
    """Translate with one implementation in this process."""
    translate = TRANSLATORS[name](case)
    for line in case.sentences[:WARMUP]:
        translate([line])
    start = clock()
    if case.whole_file:
        translate(case.sentences)
    else:
        for line in case.sentences:
            translate([line])
    seconds = clock() - start
    tokenizer = load_tokenizer(Path(case.model) / "tokenizer.json")
    return DecodingMeasurement(sum(len(ids) + 1 for ids in tokenizer.encode_batch(case.sentences)), seconds)


# --- language models --------------------------------------------------------------------------------------------------


def regard_generator(folder: str, engine: Any, precision: Any) -> Generate:
    """Return regard's generation, one stream."""
    import regard

    model = regard.load(f"{folder}/model")

    def generate(length: int) -> list[float]:
        chunks = model.stream(
            PROMPT, temperature=0.0, min_tokens=length, max_tokens=length, engine=engine, precision=precision
        )
        return [clock() for _ in chunks]

    return generate


def huggingface_generator(folder: str) -> Generate:
    """Return `generate` of transformers, with a streamer that records the time of each token."""
    from transformers import AutoTokenizer, GPT2LMHeadModel
    from transformers.generation.streamers import BaseStreamer

    exported = f"{folder}/huggingface"
    tokenizer, model = AutoTokenizer.from_pretrained(exported), GPT2LMHeadModel.from_pretrained(exported).eval()
    batch = tokenizer([PROMPT], return_tensors="pt")

    class Clock(BaseStreamer):  # type: ignore[misc]
        def __init__(self) -> None:
            self.times: list[float] = []

        def put(self, value: Any) -> None:
            self.times.append(clock())

        def end(self) -> None:
            pass

    def generate(length: int) -> list[float]:
        clock = Clock()
        model.generate(
            batch["input_ids"],
            attention_mask=batch["attention_mask"],
            do_sample=False,
            max_new_tokens=length,
            min_new_tokens=length,
            streamer=clock,
        )
        return clock.times[1:]  # the first is that of the prompt

    return generate


def ctranslate2_generator(folder: str) -> Generate:
    """Return the token stream of CTranslate2, with its default number of threads."""
    import ctranslate2

    exported = f"{folder}/ctranslate2"
    generator = ctranslate2.Generator(exported, device="cpu")
    tokenizer = load_tokenizer(Path(exported) / "tokenizer.json")
    prompt = ["[SOS]", *tokenizer.ids_to_tokens(tokenizer.encode(PROMPT))]

    def generate(length: int) -> list[float]:
        tokens = generator.generate_tokens(prompt, max_length=length, min_length=length, sampling_topk=1)
        return [clock() for _ in tokens]

    return generate


GENERATORS: dict[str, Callable[[str], Generate]] = {
    "regard (auto: CTranslate2, int8)": lambda folder: regard_generator(folder, "auto", "int8"),
    "regard (torch, float32)": lambda folder: regard_generator(folder, "torch", "float32"),
    "CTranslate2 int8, defaults": ctranslate2_generator,
    "HF generate, float32": huggingface_generator,
}


def measure_generation(folder: str, name: str) -> DecodingMeasurement:
    """Generate one text with one implementation in this process."""
    generate = GENERATORS[name](folder)
    generate(WARMUP)
    start = clock()
    times = generate(GENERATED_TOKENS)
    return DecodingMeasurement(GENERATED_TOKENS, times[-1] - start, times[0] - start)


# --- comparison -------------------------------------------------------------------------------------------------------


def compare(kind: str, names: Sequence[str], case: dict[str, Any], rounds: int) -> dict[str, list[DecodingMeasurement]]:
    """Measure the implementations in turns, each time in a fresh process."""
    results: dict[str, list[DecodingMeasurement]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names:
            environment = {**SPIN_COUNT, "HF_HUB_OFFLINE": "1"}
            output = run_in_process(__file__, [kind, name], data=case, environment=environment)
            last = DecodingMeasurement(**output)
            results[name].append(last)
            print(f"round {turn + 1}, {name}: {last.tokens / last.seconds:,.0f} tokens/s", file=sys.stderr)
    return results


def table(results: dict[str, list[DecodingMeasurement]], *, latency: bool) -> Iterator[tuple[str, ...]]:
    """Yield rows with tokens per second, and how many times as fast regard is (auto and torch, if measured)."""
    speeds = {name: median(run.tokens / run.seconds for run in runs) for name, runs in results.items()}
    engines = {kind: next((speed for name, speed in speeds.items() if f"({kind}" in name), 0.0) for kind in ENGINES}
    engines = {kind: speed for kind, speed in engines.items() if speed}
    yield ("", "tokens/s", *(f"regard ({kind}) is" for kind in engines), *(["first token"] if latency else []))
    for name, runs in results.items():
        first = [f"{median(run.first_token_seconds for run in runs) * 1000:.0f} ms"] if latency else []
        ratios = (f"{speed / speeds[name]:.2f}×" for speed in engines.values())
        yield (name, with_spread([run.tokens / run.seconds for run in runs]), *ratios, *first)


def export(folder: Path, out: Path) -> None:
    """Export a model for the other implementations."""
    from regard.interop import export_ctranslate2, export_huggingface

    export_ctranslate2(folder, out / "ctranslate2", "int8")
    export_huggingface(folder, out / "huggingface")


def make_language_model(out: Path) -> None:
    """Write a network with random weights, whose speed is that of trained ones, in all formats."""
    from regard.models import build, save

    text = ("".join(document) for document in builtin_documents("builtin:python-docs"))
    tokenizer = train_tokenizer(text, TokenizerConfig(kind="byte-level"), GPT.vocab_size)
    save(out / "model", build(GPT), Config(model=GPT), extra_files={"tokenizer.json": tokenizer.to_json()})
    export(out / "model", out)


def compare_translation(model: Path, lines: list[str], names: Sequence[str], rounds: int) -> None:
    """Compare greedy and beam search on whole files and single sentences, and print the tables."""
    with TemporaryDirectory() as folder:
        export(model, Path(folder))
        for whole_file in (True, False):
            for search, beam in BEAMS.items():
                sentences = lines if whole_file else lines[: max(1, len(lines) // 4)]
                case = TranslationCase(str(model), folder, beam, whole_file, sentences)
                results = compare("translation", names, asdict(case), rounds)
                mode = "whole-file" if whole_file else "one at a time"
                print_markdown(table(results, latency=False), f"{search}, {mode}, {len(sentences)} sentences")


def compare_generation(names: Sequence[str], rounds: int) -> None:
    """Compare the generation of one text, and print the table."""
    with TemporaryDirectory() as folder:
        make_language_model(Path(folder))
        results = compare("generation", names, {"folder": folder}, rounds)
    title = f"GPT, 6 layers, width 384, one stream of {GENERATED_TOKENS} tokens"
    print_markdown(table(results, latency=True), title)


def main() -> None:
    """Compare the implementations and print the tables."""
    if sys.argv[1:2] == ["--one"]:
        kind, name = sys.argv[2:]
        case = json.load(sys.stdin)
        translation = kind == "translation"
        measured = (
            measure_translation(TranslationCase(**case), name)
            if translation
            else measure_generation(case["folder"], name)
        )
        print(json.dumps(asdict(measured)))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, help="translation model: run or model folder; without it, only the GPT")
    parser.add_argument("--input", type=Path, help="sentences; defaults to the test sentences of the phrasebook")
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="implementations, by a part of their names")
    options = parser.parse_args()

    def selected(names: dict[str, Any]) -> list[str]:
        return [name for name in names if not options.only or any(part in name for part in options.only)]

    if options.model is not None:
        from regard.models.folder_files import resolve_model_folder

        lines = (
            options.input.read_text("utf-8").splitlines()
            if options.input
            else [pair.source for pair in builtin_pairs("builtin:phrasebook-test")]
        )
        model = resolve_model_folder(options.model)
        compare_translation(model, lines[: options.sentences], selected(TRANSLATORS), options.rounds)
    compare_generation(selected(GENERATORS), options.rounds)


if __name__ == "__main__":
    main()
