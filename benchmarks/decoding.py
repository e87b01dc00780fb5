"""How fast regard translates and writes, beside what people use today: the same model, sentences and search.

    python benchmarks/decoding.py --model runs/demo                                  # and its own test sentences
    python benchmarks/decoding.py --model runs/en-de --input test.en --sentences 500 --rounds 3

Contenders take turns, round after round, each time in a fresh process; medians over the rounds are shown. All times
include tokenising and detokenising; loading the model and a few sentences to warm up come before the clock starts.
Peers load what `regard export` writes. `defaults` is CTranslate2 as its documentation begins; `best` is the fastest of
the settings that we tried: one worker with one thread for each core, and batches of 16 to 64 sentences; `as patient`
also waits for as many hypotheses to end as regard does. Speeds are in tokens of the source, which are the same for all.

Whole-file: all sentences at once, in batches of about equal length. One at a time: each is answered before the next.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from regard.config import Config, DecoderOnlyConfig, LearnedPositionsConfig, TokenizerConfig
from regard.data.readers.builtin import builtin_documents, builtin_pairs
from regard.data.tokenizer import load_tokenizer, train_tokenizer
from regard.decoding.engines.ctranslate2 import DEFAULT_PATIENCE
from regard.decoding.options import (
    GenerationOptions,
    OutputConstraints,
    SamplingOptions,
    SearchOptions,
    TranslationOptions,
)

BEAMS = {"greedy": 1, "beam 4": 4}
BATCH = 32
WARM_UP = 4
WRITTEN = 200  # tokens that a language model writes
GPT = DecoderOnlyConfig(
    vocabulary=8_000,
    width=384,
    layers=6,
    heads=6,
    feed_forward=1536,
    activation="gelu-tanh",
    norm_order="pre",
    attention_bias=True,
    scale_embeddings=False,
    positions=LearnedPositionsConfig(length=512),
)
CORES = len(os.sched_getaffinity(0))
PROMPT = "The"
Translate = Callable[[Sequence[str]], list[str]]
Write = Callable[[int], list[float]]  # writes so many tokens, and tells when each came


@dataclass(frozen=True)
class Case:
    """What is to be done."""

    model: str  # a model folder
    exported: str  # where its exports are: ctranslate2, huggingface
    beam: int
    together: bool  # whole-file, or one at a time
    sentences: list[str]


@dataclass(frozen=True)
class Measured:
    """What one contender did."""

    tokens: int
    seconds: float
    first: float = 0.0  # seconds until the first token, for language models
    texts: tuple[str, ...] = ()


# ── translators ──────────────────────────────────────────────────────────────────────────────────────────────────────


def ours(case: Case, engine: Any, precision: Any) -> Translate:
    """regard."""
    import regard

    model = regard.load(case.model)
    wish = TranslationOptions(SearchOptions(width=case.beam), split=False)
    ready = model.translator(wish, engine=engine, precision=precision)
    return lambda lines: [found.text for found in ready.translate(lines, wish)]


def hugging_face(case: Case) -> Translate:
    """transformers' `generate`, in batches of about equal length."""
    import torch
    from transformers import AutoTokenizer, MarianMTModel
    from transformers.utils import logging

    folder = f"{case.exported}/huggingface"
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    tokenizer, model = AutoTokenizer.from_pretrained(folder), MarianMTModel.from_pretrained(folder).eval()

    @torch.inference_mode()
    def translate(lines: Sequence[str]) -> list[str]:
        found = [""] * len(lines)
        order = sorted(range(len(lines)), key=lambda n: len(lines[n]))
        for start in range(0, len(order), BATCH):
            group = order[start : start + BATCH]
            batch = tokenizer([lines[n] for n in group], return_tensors="pt", padding=True)
            longest = batch["input_ids"].size(1) + 50
            ids = model.generate(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                num_beams=case.beam,
                max_new_tokens=longest,
                length_penalty=0.6,
            )
            for n, text in zip(group, tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True):
                found[n] = text
        return found

    return translate


def ctranslate2_alone(case: Case, *, best: bool, patience: float = 1.0) -> Translate:
    """CTranslate2 called directly, with the same tokenizer."""
    import ctranslate2

    folder = f"{case.exported}/ctranslate2"
    threads = {"inter_threads": CORES, "intra_threads": 1} if best else {}
    translator = ctranslate2.Translator(folder, device="cpu", **threads)
    tokenizer = load_tokenizer(Path(folder) / "tokenizer.json")
    longest = max(len(ids) for ids in tokenizer.encode_batch(case.sentences)) + 51
    options: dict[str, Any] = {"beam_size": case.beam, "max_decoding_length": longest, "patience": patience}
    options |= {"length_penalty": 0.6} if case.beam > 1 else {}
    if best:
        options |= {"max_batch_size": BATCH if case.beam == 1 else BATCH // 2, "batch_type": "examples"}

    def translate(lines: Sequence[str]) -> list[str]:
        ids = tokenizer.encode_batch(lines)
        results = translator.translate_batch([tokenizer.ids_to_tokens(row) for row in ids], **options)
        return [tokenizer.decode_tokens(result.hypotheses[0]) for result in results]

    return translate


TRANSLATORS: dict[str, Callable[[Case], Translate]] = {
    "regard (auto: CTranslate2, int8)": lambda case: ours(case, "auto", "int8"),
    "regard (CTranslate2, float32)": lambda case: ours(case, "ctranslate2", "float32"),
    "regard (torch, float32)": lambda case: ours(case, "torch", "float32"),
    "CTranslate2 int8, defaults": lambda case: ctranslate2_alone(case, best=False),
    "CTranslate2 int8, best": lambda case: ctranslate2_alone(case, best=True),
    "CTranslate2 int8, best, as patient": lambda case: ctranslate2_alone(case, best=True, patience=DEFAULT_PATIENCE),
    "HF generate, float32": hugging_face,
}


def translated(case: Case, name: str) -> Measured:
    """Translate with one contender, in this process."""
    translate = TRANSLATORS[name](case)
    for line in case.sentences[:WARM_UP]:
        translate([line])
    began = time.perf_counter()
    texts = translate(case.sentences) if case.together else [translate([line])[0] for line in case.sentences]
    seconds = time.perf_counter() - began
    tokenizer = load_tokenizer(Path(case.model) / "tokenizer.json")
    return Measured(
        sum(len(ids) + 1 for ids in tokenizer.encode_batch(case.sentences)), seconds, texts=tuple(texts[:3])
    )


# ── language models ──────────────────────────────────────────────────────────────────────────────────────────────────


def ours_writing(folder: str, engine: Any, precision: Any) -> Write:
    """regard, one stream."""
    import regard

    model = regard.load(f"{folder}/model")

    def write(length: int) -> list[float]:
        wish = GenerationOptions(SamplingOptions(temperature=0.0, bounds=OutputConstraints(length, length)))
        return [time.perf_counter() for _ in model.stream(PROMPT, wish, engine=engine, precision=precision)]

    return write


def hugging_face_writing(folder: str) -> Write:
    """transformers' `generate`, with a streamer that looks at the clock."""
    from transformers import AutoTokenizer, GPT2LMHeadModel
    from transformers.generation.streamers import BaseStreamer

    place = f"{folder}/huggingface"
    tokenizer, model = AutoTokenizer.from_pretrained(place), GPT2LMHeadModel.from_pretrained(place).eval()
    batch = tokenizer([PROMPT], return_tensors="pt")

    class Clock(BaseStreamer):  # type: ignore[misc]
        def __init__(self) -> None:
            self.moments: list[float] = []

        def put(self, value: Any) -> None:
            self.moments.append(time.perf_counter())

        def end(self) -> None:
            pass

    def write(length: int) -> list[float]:
        clock = Clock()
        model.generate(
            batch["input_ids"],
            attention_mask=batch["attention_mask"],
            do_sample=False,
            max_new_tokens=length,
            min_new_tokens=length,
            streamer=clock,
        )
        return clock.moments[1:]  # the first is the prompt

    return write


def ctranslate2_writing(folder: str) -> Write:
    """CTranslate2's own stream of tokens, with its default threads."""
    import ctranslate2

    place = f"{folder}/ctranslate2"
    generator = ctranslate2.Generator(place, device="cpu")
    tokenizer = load_tokenizer(Path(place) / "tokenizer.json")
    prompt = ["[SOS]", *tokenizer.ids_to_tokens(tokenizer.encode(PROMPT))]

    def write(length: int) -> list[float]:
        steps = generator.generate_tokens(prompt, max_length=length, min_length=length, sampling_topk=1)
        return [time.perf_counter() for _ in steps]

    return write


WRITERS: dict[str, Callable[[str], Write]] = {
    "regard (auto: CTranslate2, int8)": lambda folder: ours_writing(folder, "auto", "int8"),
    "regard (torch, float32)": lambda folder: ours_writing(folder, "torch", "float32"),
    "CTranslate2 int8, defaults": ctranslate2_writing,
    "HF generate, float32": hugging_face_writing,
}


def wrote(folder: str, name: str) -> Measured:
    """Write one text with one contender, in this process."""
    write = WRITERS[name](folder)
    write(WARM_UP)
    began = time.perf_counter()
    moments = write(WRITTEN)
    return Measured(WRITTEN, moments[-1] - began, moments[0] - began)


# ── the comparison ───────────────────────────────────────────────────────────────────────────────────────────────────


def in_a_process(what: str, name: str, case: dict[str, Any]) -> Measured:
    """One contender's measurement, made in a process of its own."""
    command = [sys.executable, __file__, "--one", what, name]
    environment = os.environ | {"GOMP_SPINCOUNT": "10000", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, input=json.dumps(case), stdout=subprocess.PIPE, text=True, check=True, env=environment
    )
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def compare(what: str, names: Sequence[str], case: dict[str, Any], rounds: int) -> dict[str, list[Measured]]:
    """Let the contenders take turns."""
    found: dict[str, list[Measured]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names:
            found[name].append(in_a_process(what, name, case))
            last = found[name][-1]
            print(f"round {turn + 1}, {name}: {last.tokens / last.seconds:,.0f} tokens/s", file=sys.stderr)
    return found


def rows(found: dict[str, list[Measured]], *, first: bool) -> Iterator[tuple[str, ...]]:
    """A table: tokens a second, and how many times as fast as each other one ours is, in auto and in torch."""
    speed = {name: median(one.tokens / one.seconds for one in those) for name, those in found.items()}
    auto, plain = (next((value for name, value in speed.items() if kind in name), 0.0) for kind in ("(auto", "(torch"))
    yield ("", "tokens/s", "regard (auto) is", "regard (torch) is", *(["first token"] if first else []))
    for name, those in found.items():
        wait = [f"{median(one.first for one in those) * 1000:.0f} ms"] if first else []
        yield (name, f"{speed[name]:,.0f}", f"{auto / speed[name]:.2f}×", f"{plain / speed[name]:.2f}×", *wait)


def show(title: str, table: Iterator[tuple[str, ...]]) -> None:
    """Print a table as Markdown."""
    head, *body = table
    print(f"\n{title}\n")
    for cells in (head, ("---", *["---:"] * (len(head) - 1)), *body):
        print(f"| {' | '.join(cells)} |")
    sys.stdout.flush()


def export(folder: Path, out: Path) -> None:
    """What the peers load."""
    from regard.interop import export_ctranslate2, export_huggingface

    export_ctranslate2(folder, out / "ctranslate2", "int8")
    export_huggingface(folder, out / "huggingface")


def language_model(out: Path) -> None:
    """A network with random weights, which are as fast as any, in all formats."""
    from regard.models import build, save

    text = ("".join(part) for part in builtin_documents("builtin:python-docs"))
    tokenizer = train_tokenizer(text, TokenizerConfig(kind="byte-level"), GPT.vocabulary)
    save(out / "model", build(GPT), Config(model=GPT), extra_files={"tokenizer.json": tokenizer.to_json()})
    export(out / "model", out)


def start_up(model: Path, rounds: int) -> float:
    """Seconds from the command to the translation of one line."""
    command = [sys.executable, "-c", "from regard.cli import main; main()", "translate", str(model)]
    taken = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        subprocess.run(command, input="I love you very much.\n", stdout=subprocess.PIPE, text=True, check=True)
        taken.append(time.perf_counter() - began)
    return median(taken[1:])  # the first converts the model


def main() -> None:
    """Compare, and print."""
    if sys.argv[1:2] == ["--one"]:
        what, name = sys.argv[2:]
        case = json.load(sys.stdin)
        measured = translated(Case(**case), name) if what == "translation" else wrote(case["folder"], name)
        print(json.dumps(asdict(measured)))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, help="a translator: a run or model folder; without it, only the GPT")
    parser.add_argument("--input", type=Path, help="sentences; without it, the built-in phrasebook's test sentences")
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contenders, by a part of their names")
    chosen = parser.parse_args()

    def among(names: dict[str, Any]) -> list[str]:
        return [name for name in names if not chosen.only or any(part in name for part in chosen.only)]

    with TemporaryDirectory() as folder:
        if chosen.model is not None:
            from regard.models.folder_files import resolve_model_folder

            model = resolve_model_folder(chosen.model)
            export(model, Path(folder))
            lines = (
                chosen.input.read_text("utf-8").splitlines()
                if chosen.input
                else [pair.source for pair in builtin_pairs("builtin:phrasebook-test")]
            )[: chosen.sentences]
            for together in (True, False):
                for search, beam in BEAMS.items():
                    some = lines if together else lines[: max(1, len(lines) // 4)]
                    case = Case(str(model), folder, beam, together, some)
                    found = compare("translation", among(TRANSLATORS), asdict(case), chosen.rounds)
                    how = "whole-file" if together else "one at a time"
                    show(f"{search}, {how}, {len(some)} sentences", rows(found, first=False))
            print(f"\nStart-up, from the command to one translated line: {start_up(model, chosen.rounds):.2f} s")
        place = Path(folder) / "gpt"
        language_model(place)
        found = compare("writing", among(WRITERS), {"folder": str(place)}, chosen.rounds)
        show(f"GPT, 6 layers, width 384, one stream of {WRITTEN} tokens", rows(found, first=True))


if __name__ == "__main__":
    main()
