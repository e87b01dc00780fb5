"""Golden runs: short, seeded runs of every task and kind of network, and what the trained models compute.

    python tests/golden/record.py           # run everything and compare with golden.json, to the last bit
    python tests/golden/record.py --write   # record golden.json again; with a name, only those cases
    python tests/golden/record.py gpt       # only the cases whose name contains "gpt"

A refactoring must leave every number as it is. Losses are compared bit by bit, so recording and comparing
belong on the same machine and the same version of torch; `test_golden.py` trains a few cases again in the tests, and
compares their losses with a tolerance.
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GOLDEN = HERE / "golden.json"
COMMAND = [sys.executable, "-m", "regard"]
METRICS = ("loss", "cross_entropy", "learning_rate", "grad_norm")

ENGLISH = ["the", "cat", "dog", "bird", "sees", "likes", "eats", "a", "red", "big", "fish", "is"]
ITALIAN = ["il", "gatto", "cane", "uccello", "vede", "ama", "mangia", "un", "rosso", "grande", "pesce", "è"]
COMMON = [
    "model.vocab_size=340",
    "model.width=32",
    "model.layers=1",
    "training.steps=12",
    "training.batch_tokens=160",
    "training.log_every=1",
    "training.schedule.learning_rate=0.005",
    "training.schedule.warmup_steps=4",
    "training.threads=1",
    "validation.every=6",
    "validation.sentences=8",
    "validation.samples=1",
    "data.validation_fraction=0.1",
    "tokenizer.split_punctuation=false",  # as when the runs were recorded
]
TRANSFORMER = ["model.heads=4", "model.feed_forward=64"]
RECURRENT = "model.kind=recurrent-encoder-decoder"
CHARACTERS = ["data.context_length=32", "tokenizer.byte_fallback=false"]  # as when the runs were recorded
CHAT = ["data.context_length=128"]
RECURRENT_LM = "model.kind=recurrent-language-model"


@dataclass(frozen=True)
class Case:
    """One run: what `regard train` is given, and the commands that use the model afterwards."""

    task: str
    data: str
    settings: Sequence[str] = ()
    commands: Sequence[Sequence[str]] = ()
    options: Sequence[str] = ()
    start_from: str | None = None
    common: Sequence[str] = tuple(COMMON)
    files: Sequence[str] = ()  # of the run folder, besides metrics.jsonl


SENTENCE = "the red cat sees a big dog"
TRANSLATE = ["translate", "MODEL", "-i", "lines.txt", "--engine", "torch", "--json"]
PLAIN = TRANSLATE[:-1]
LOOK = ["look", "MODEL", SENTENCE, "--json"]
GENERATE = [
    "generate",
    "MODEL",
    "--prompt",
    "the cat",
    "--max-tokens",
    "12",
    "--temperature",
    "0.8",
    "--seed",
    "3",
    "--engine",
    "torch",
    "--json",
]

CASES: dict[str, Case] = {
    "translation": Case(
        "translation",
        "pairs.tsv",
        TRANSFORMER,
        [
            TRANSLATE,
            [*PLAIN, "--beam", "1"],
            [*PLAIN, "--n-best", "3"],
            ["translate", "MODEL", "-i", "lines.txt", "--engine", "ctranslate2"],
            LOOK,
            [*LOOK, "--gradients"],
            ["look", "MODEL", SENTENCE, "--json", "--off", "decoder.0.cross_attention[1]"],
            ["score", "MODEL", "--data", "pairs.tsv", "--json"],
            ["evaluate", "MODEL", "--data", "valid.tsv", "--json"],
        ],
    ),
    "translation, relative, pre-norm, RMS, SwiGLU": Case(
        "translation",
        "pairs.tsv",
        [
            *TRANSFORMER,
            "model.positions.kind=relative",
            "model.norm=rms",
            "model.norm_order=pre",
            "model.activation=swiglu",
            "model.attention_dropout=0.1",
            "model.activation_dropout=0.1",
        ],
        [TRANSLATE, PLAIN, LOOK],
    ),
    "translation, R-Drop, EMA, average, accumulation": Case(
        "translation",
        "pairs.tsv",
        [
            *TRANSFORMER,
            "training.rdrop=1.0",
            "training.ema_decay=0.9",
            "training.average_checkpoints=2",
            "training.gradient_accumulation=2",
            "training.optimizer.kind=adamw",
            "training.max_grad_norm=0.5",
        ],
    ),
    "translation, rotary, cosine": Case(
        "translation",
        "pairs.tsv",
        [*TRANSFORMER, "model.positions.kind=rotary", "training.schedule.kind=cosine"],
        [TRANSLATE, PLAIN, LOOK],
    ),
    "translation, ALiBi": Case("translation", "pairs.tsv", [*TRANSFORMER, "model.positions.kind=alibi"], [LOOK]),
    "translation, learned": Case("translation", "pairs.tsv", [*TRANSFORMER, "model.positions.kind=learned"], [LOOK]),
    "translation, window": Case("translation", "pairs.tsv", [*TRANSFORMER, "model.attention.kind=window"], [LOOK]),
    "translation, BigBird": Case(
        "translation",
        "pairs.tsv",
        [*TRANSFORMER, "model.attention.kind=bigbird", "model.attention.block_size=2"],
        [LOOK],
    ),
    "translation, Linformer": Case(
        "translation",
        "pairs.tsv",
        [*TRANSFORMER, "model.attention.kind=linformer", "model.attention.projected_length=8"],
        [LOOK],
    ),
    "translation, BPE-dropout, narrow keys": Case(
        "translation", "pairs.tsv", [*TRANSFORMER, "tokenizer.dropout=0.1", "model.key_width=4"]
    ),
    "translation, syntax": Case(
        "translation",
        "pairs.tsv",
        [*TRANSFORMER, "model.positions.kind=syntax"],
        options=["--source", "source.txt", "--target", "target.txt", "--parses", "source.conllu"],
    ),
    "translation, Bahdanau": Case("translation", "pairs.tsv", [RECURRENT, "model.cell=gru"], [TRANSLATE, PLAIN, LOOK]),
    "translation, Luong": Case(
        "translation", "pairs.tsv", [RECURRENT, "model.cell=lstm", "model.attention=dot"], [TRANSLATE, PLAIN, LOOK]
    ),
    "translation, vanilla RNN": Case(
        "translation",
        "pairs.tsv",
        [RECURRENT, "model.cell=rnn", "model.attention=none", "model.bidirectional=false"],
        [LOOK],
    ),
    "gpt": Case(
        "gpt",
        "text.txt",
        [*TRANSFORMER, *CHARACTERS],
        [GENERATE, [*GENERATE, "--temperature", "0"], LOOK, ["score", "MODEL", "--data", "text.txt", "--json"]],
    ),
    "gpt, learned, documents apart": Case(
        "gpt",
        "text.txt",
        [*TRANSFORMER, *CHARACTERS, "model.positions.kind=learned", "data.documents=separate"],
        [GENERATE],
    ),
    "gpt, LSTM": Case("gpt", "text.txt", [RECURRENT_LM, *CHARACTERS, "model.cell=lstm"], [GENERATE, LOOK]),
    "gpt, rotary": Case("gpt", "text.txt", [*TRANSFORMER, *CHARACTERS, "model.positions.kind=rotary"], [GENERATE]),
    "chat, from gpt": Case("chat", "chats.jsonl", CHAT, start_from="gpt, rotary"),
    "dpo, from gpt": Case("dpo", "preferences.jsonl", CHAT, start_from="gpt, rotary"),
    "elmo": Case("elmo", "text.txt", CHARACTERS, [["embed", "MODEL", "-i", "lines.txt"], LOOK]),
    "masked": Case(
        "masked",
        "text.txt",
        [*TRANSFORMER, "data.context_length=32"],
        [["fill", "MODEL", "-i", "masked.txt", "--json"], ["embed", "MODEL", "-i", "lines.txt"], LOOK],
    ),
    "classify": Case("classify", "labels.tsv", TRANSFORMER, [["classify", "MODEL", "-i", "lines.txt", "--json"], LOOK]),
    "classify, two texts": Case("classify", "twos.tsv", [*TRANSFORMER, "model.segments=2"]),
    "classify, ELMo": Case("classify", "labels.tsv", ["model.kind=bidirectional-language-model"]),
    "tag": Case("tag", "tags.txt", TRANSFORMER, [["classify", "MODEL", "-i", "lines.txt", "--json"], LOOK]),
    "word2vec": Case(
        "word2vec",
        "text.txt",
        ["word2vec.width=4", "word2vec.epochs=2", "word2vec.min_count=1", "word2vec.subsample=0"],
        common=(),
        files=["vectors.txt"],
    ),
    "classify, from masked": Case("classify", "labels.tsv", start_from="masked"),
}


def write_data(folder: Path) -> None:
    """The data of all cases, made from a seed."""
    draw = random.Random(7)
    sentences = [draw.choices(range(len(ENGLISH)), k=draw.randint(3, 9)) for _ in range(240)]
    english, italian = (
        [" ".join(words[n] for n in order) for order in made]
        for words, made in ((ENGLISH, sentences), (ITALIAN, [s[::-1] for s in sentences]))
    )
    pairs = [f"{source}\t{target}\n" for source, target in zip(english, italian, strict=True)]
    tagged = "\n".join("".join(f"{ENGLISH[n]} {'NOUN' if n in (1, 2, 3, 10) else 'O'}\n" for n in s) for s in sentences)
    talks = [conversation(source, target) for source, target in zip(english[:60], italian, strict=False)]
    files = {
        "pairs.tsv": "".join(pairs[:200]),
        "valid.tsv": "".join(pairs[200:]),
        "lines.txt": "".join(f"{line}\n" for line in english[200:206]),
        "masked.txt": "the red [MASK] sees a big dog\na [MASK] eats the fish\n",
        "text.txt": "".join(f"{line}.\n\n" if n % 5 == 4 else f"{line}. " for n, line in enumerate(english)),
        "labels.tsv": "".join(f"{'cat' if ' cat' in line else 'other'}\t{line}\n" for line in english),
        "twos.tsv": "".join(f"{'same' if n % 2 else 'other'}\t{english[n]}\t{english[n ^ 3]}\n" for n in range(200)),
        "tags.txt": tagged,
        "chats.jsonl": "".join(chat for chat, _ in talks),
        "preferences.jsonl": "".join(preference for _, preference in talks),
        "source.txt": "".join(f"{line}\n" for line in english[:200]),
        "target.txt": "".join(f"{line}\n" for line in italian[:200]),
        "source.conllu": "\n".join(parse(line.split()) for line in english[:200]) + "\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")


def conversation(question: str, answer: str) -> tuple[str, str]:
    """A line of a conversation, and one of a preference for its answer."""
    asked, answered = ({"role": role, "content": text} for role, text in (("user", question), ("assistant", answer)))
    chat = json.dumps({"messages": [asked, answered]})
    return f"{chat}\n", f"{json.dumps({'prompt': question, 'chosen': answer, 'rejected': question})}\n"


def parse(words: Sequence[str]) -> str:
    """A dependency tree in CoNLL-U; the first word is the root, each other depends on the word at half its index."""
    rows = ((n, word, n // 2) for n, word in enumerate(words, 1))
    return "".join(f"{n}\t{word}\t_\t_\t_\t_\t{head}\t{'dep' if head else 'root'}\t_\t_\n" for n, word, head in rows)


def call(folder: Path, arguments: Sequence[str]) -> str:
    """Standard output of a command that runs in the folder of the data, on one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    done = subprocess.run([*COMMAND, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"regard {' '.join(arguments)} failed:\n{done.stderr}")
    return done.stdout


def run_name(case: str) -> str:
    """A folder for a case's run."""
    return "".join(letter if letter.isalnum() else "-" for letter in case)


def train_arguments(name: str) -> list[str]:
    """The arguments of `regard` that train a case, in the folder of the data."""
    case = CASES[name]
    common = [setting for setting in case.common if case.start_from is None or not setting.startswith("model.")]
    settings = [part for setting in (*common, *case.settings) for part in ("--set", setting)]
    start = ["--from", run_name(case.start_from)] if case.start_from else []
    data = case.options or ["--data", case.data]
    return ["train", case.task, *data, "--out", run_name(name), "--quiet", *start, *settings]


def run_metrics(folder: Path, name: str) -> list[dict[str, Any]]:
    """What must not change in the metrics of a case's run; nothing for a task that has none."""
    path = folder / run_name(name) / "metrics.jsonl"
    return [metrics(json.loads(line)) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def run_case(folder: Path, name: str) -> dict[str, Any]:
    """Train, then use the model."""
    case, out = CASES[name], run_name(name)
    call(folder, train_arguments(name))
    outputs = {}
    for command in case.commands:
        output = call(folder, [out if part == "MODEL" else part for part in command])
        outputs[" ".join(command)] = summary(output)
    if LOOK in case.commands:
        outputs["every point of the trace"] = trace_summary(folder, out)
    for file in case.files:
        outputs[file] = {"text": (folder / out / file).read_text("utf-8")}
    return {"metrics": run_metrics(folder, name), "outputs": outputs}


def trace_summary(folder: Path, model: str) -> dict[str, Any]:
    """A digest of the values at every point that a trace of this model has."""
    points = json.loads(call(folder, ["look", model, SENTENCE, "--json"]))["points"]
    addresses = [part for point in points for part in ("--at", point["name"])]
    return {"points": len(points), **summary(call(folder, ["look", model, SENTENCE, "--json", *addresses]))}


def metrics(line: dict[str, Any]) -> dict[str, Any]:
    """What must not change in a line of metrics.jsonl: no times, and the fields under their lasting names."""
    kept = {field: value for field, value in line.items() if field in METRICS}
    return {"step": line["step"], **kept, **({"valid": line["valid"]} if "valid" in line else {})}


def summary(output: str) -> dict[str, Any]:
    """The texts of an output, and a digest of all numbers in it, whatever the fields are called."""
    try:
        values = [json.loads(output)]
    except json.JSONDecodeError:
        try:
            values = [json.loads(line) for line in output.splitlines()]
        except json.JSONDecodeError:
            return {"text": output}
    numbers = sorted(number for value in values for number in _floats(value))
    digest = hashlib.sha256(json.dumps(numbers).encode()).hexdigest()
    texts = [value["text"] for value in values if isinstance(value, dict) and isinstance(value.get("text"), str)]
    return {"numbers": len(numbers), "sha256": digest, "mean": sum(numbers) / max(len(numbers), 1), "texts": texts}


def _floats(value: object) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            if name != "confidence":  # newer than the recorded runs
                yield from _floats(item)
    elif isinstance(value, list):
        for item in value:
            yield from _floats(item)


def differences(expected: Any, actual: Any, place: str = "") -> Iterator[str]:
    """Where two records differ."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in sorted({*expected, *actual}):
            yield from differences(expected.get(key), actual.get(key), f"{place}/{key}")
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for n, (one, other) in enumerate(zip(expected, actual, strict=True)):
            yield from differences(one, other, f"{place}/{n}")
    elif expected != actual:
        yield f"{place}: expected {expected!r}, found {actual!r}"


def record(names: Sequence[str], report: Callable[[str], None] = lambda name: None) -> dict[str, Any]:
    """Run cases in a temporary folder; those that start from another case's model come after it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_data(folder)
        first = [name for name in names if CASES[name].start_from is None]
        later = [name for name in names if CASES[name].start_from is not None]
        needed = dict.fromkeys(CASES[name].start_from for name in later)  # each once
        first += [name for name in needed if name is not None and name not in first]

        def one(name: str) -> tuple[str, dict[str, Any]]:
            report(name)
            return name, run_case(folder, name)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = dict(pool.map(one, first))
            found |= dict(pool.map(one, later))
    return {name: found[name] for name in names}


def main() -> int:
    """Record, or compare with what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="?", default="", help="only cases whose name contains this")
    parser.add_argument("--write", action="store_true", help="write golden.json instead of comparing with it")
    options = parser.parse_args()
    names = [name for name in CASES if options.case in name]
    recorded = record(names, lambda name: print(f"running {name}", file=sys.stderr))
    golden = json.loads(GOLDEN.read_text("utf-8"))
    if options.write:
        GOLDEN.write_text(json.dumps(golden | recorded, indent=1, ensure_ascii=False) + "\n", "utf-8")
        return 0
    found = [line for name in names for line in differences(golden[name], recorded[name], name)]
    print("\n".join(found) or f"all {len(names)} cases are equal")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
