"""How much `regard serve` carries, beside a CTranslate2 server of the simplest kind: requests a second at rising load.

    python benchmarks/serving.py --model runs/demo                                # and its own test sentences
    python benchmarks/serving.py --model runs/en-de --input test.en --requests 10000 --clients 1 8 32 128

Each server runs in a process of its own, one after the other, round after round, and is asked by the same clients: so
many at a time, each of which sends its next sentence when it has the answer to the last. The peer is a FastAPI route
that calls `ctranslate2.Translator`, with the same tokenizer, 8-bit matrices and beam: `defaults` as CTranslate2's
documentation begins, `best threads` with one worker of one thread for each core. All of them speak LibreTranslate's
`/translate`. An answer is wrong if it differs from what the same server says to that sentence alone, and lost if none
comes. The last lines compare the most that each carries while its p99 is no worse than the peer's at its busiest.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

from regard.data.readers.builtin import builtin_pairs

CORES = len(os.sched_getaffinity(0))
OURS = "regard serve"
PEERS = {"CTranslate2 + FastAPI, defaults": "defaults", "CTranslate2 + FastAPI, best threads": "best"}
WARM_UP = 20  # requests before the clock starts


@dataclass(frozen=True)
class Measured:
    """What one server did under one load."""

    rate: float  # requests a second
    p50: float  # seconds
    p99: float
    wrong: int
    lost: int


# ── the peer ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def peer(folder: str, threads: str, beam: int, port: int) -> None:
    """CTranslate2 behind FastAPI, as one writes it in ten minutes."""
    import ctranslate2
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    from regard.data.tokenizer import load_tokenizer

    options = {"inter_threads": CORES, "intra_threads": 1} if threads == "best" else {}
    translator: Any = ctranslate2.Translator(folder, device="cpu", **options)
    tokenizer = load_tokenizer(Path(folder) / "tokenizer.json")
    app = FastAPI()

    class Asked(BaseModel):
        q: str
        source: str
        target: str

    class Answer(BaseModel):
        translatedText: str  # noqa: N815  # the protocol's name

    @app.post("/translate")
    def translate(asked: Asked) -> Answer:
        (found,) = translator.translate_batch([tokenizer.ids_to_tokens(tokenizer.encode(asked.q))], beam_size=beam)
        return Answer(translatedText=tokenizer.decode_tokens(found.hypotheses[0]))

    Asked.model_rebuild()
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)


# ── the clients ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Client:
    """One connection, over which one request after the other is sent; as little work as can be."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, sentence: str) -> str | None:
        """The translation of a sentence; None if the server gives none."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            body = json.dumps({"q": sentence, "source": "en", "target": "it"}).encode()
            writer.write(
                b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(None, 1)[0])
            content = await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError, ValueError, IndexError):
            self.close()
            return None
        if not head.startswith(b"HTTP/1.1 200"):
            return None
        return str(json.loads(content)["translatedText"])

    def close(self) -> None:
        """End the connection."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


async def load(
    port: int, sentences: Sequence[str], requests: int, clients: int, alone: dict[str, str | None]
) -> Measured:
    """Send so many requests, from so many clients at a time; `alone` are the right answers."""
    rest, times, wrong, lost = iter(range(requests)), list[float](), 0, 0

    async def work() -> None:
        nonlocal wrong, lost
        client = Client(port)
        for number in rest:
            sentence = sentences[number % len(sentences)]
            began = time.perf_counter()
            found = await client.ask(sentence)
            times.append(time.perf_counter() - began)
            lost += found is None
            wrong += found is not None and found != alone[sentence]
        client.close()

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(clients)))
    seconds = time.perf_counter() - began
    hundredths = quantiles(times, n=100)
    return Measured(requests / seconds, hundredths[49], hundredths[98], wrong, lost)


async def one_by_one(port: int, sentences: Sequence[str]) -> dict[str, str | None]:
    """What the server says to each sentence when nobody else asks."""
    client = Client(port)
    found = {sentence: await client.ask(sentence) for sentence in sentences}
    client.close()
    if None in found.values():
        sys.exit("a sentence was not answered though nobody else asked")
    return found


# ── the comparison ───────────────────────────────────────────────────────────────────────────────────────────────────


def start(name: str, model: Path, exported: Path, beam: int, port: int) -> "subprocess.Popen[bytes]":
    """Start a server in a process of its own."""
    if name == OURS:
        code = "from regard.cli import main; main()"
        command = [sys.executable, "-c", code, "serve", f"model[en-it]={model}", "--port", str(port)]
        command += ["--beam", str(beam), "--queue", "4096"]
    else:
        command = [sys.executable, __file__, "--peer", str(exported), PEERS[name], str(beam), str(port)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, env=os.environ | {"GOMP_SPINCOUNT": "10000"})


async def measure(port: int, sentences: Sequence[str], requests: int, levels: Sequence[int]) -> dict[int, Measured]:
    """A server at rising load."""
    client, deadline = Client(port), time.monotonic() + 120
    while await client.ask(sentences[0]) is None:
        if time.monotonic() > deadline:
            sys.exit("the server did not start")
        await asyncio.sleep(0.1)
    for sentence in sentences[:WARM_UP]:
        await client.ask(sentence)
    client.close()
    alone = await one_by_one(port, sentences)
    return {level: await load(port, sentences, requests, level, alone) for level in levels}


def free_port() -> int:
    """A port that nobody listens at."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def compare(
    model: Path, exported: Path, sentences: Sequence[str], chosen: argparse.Namespace
) -> dict[str, dict[int, list[Measured]]]:
    """Let the servers take turns."""
    taking_part = {OURS, *chosen.peers}
    found: dict[str, dict[int, list[Measured]]] = {
        name: {level: [] for level in chosen.clients} for name in (OURS, *PEERS) if PEERS.get(name, OURS) in taking_part
    }
    for turn in range(chosen.rounds):
        for name, levels in found.items():
            port = free_port()
            server = start(name, model, exported, chosen.beam, port)
            try:
                measured = asyncio.run(measure(port, sentences, chosen.requests, chosen.clients))
            finally:
                server.terminate()
                server.wait()
            for level, one in measured.items():
                levels[level].append(one)
                print(f"round {turn + 1}, {name}, {level} clients: {one.rate:,.0f} requests/s", file=sys.stderr)
    return found


def middle(several: Sequence[Measured]) -> Measured:
    """The median over the rounds; what was wrong or lost is added up."""
    rate, p50, p99 = (median(getattr(one, name) for one in several) for name in ("rate", "p50", "p99"))
    return Measured(rate, p50, p99, sum(one.wrong for one in several), sum(one.lost for one in several))


def show(found: dict[str, dict[int, list[Measured]]]) -> None:
    """Print the table as Markdown, and what follows from it."""
    print("\n| server | clients | requests/s | p50 | p99 | wrong | lost |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    table = {name: {level: middle(several) for level, several in levels.items()} for name, levels in found.items()}
    for name, levels in table.items():
        for level, one in levels.items():
            times = f"{1000 * one.p50:.1f} ms | {1000 * one.p99:.1f} ms"
            print(f"| {name} | {level} | {one.rate:,.0f} | {times} | {one.wrong} | {one.lost} |")
    print()
    for name in (name for name in PEERS if name in table):
        busiest = max(table[name].values(), key=lambda one: one.rate)
        ours = max((one.rate for one in table[OURS].values() if one.p99 <= busiest.p99), default=0.0)
        print(
            f"{name}: {busiest.rate:,.0f} requests/s at a p99 of {1000 * busiest.p99:.0f} ms; "
            f"regard {ours:,.0f} at no worse a p99: {ours / busiest.rate:.2f}×"
        )


def main() -> None:
    """Compare, and print."""
    if sys.argv[1:2] == ["--peer"]:
        folder, threads, beam, port = sys.argv[2:]
        peer(folder, threads, int(beam), int(port))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="a translator: a run or model folder")
    parser.add_argument("--input", type=Path, help="sentences; without it, the built-in phrasebook's test sentences")
    parser.add_argument("--sentences", type=int, default=1000, help="how many different ones")
    parser.add_argument("--requests", type=int, default=10_000, help="for each server, load and round")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", nargs="+", choices=list(PEERS.values()), default=list(PEERS.values()))
    chosen = parser.parse_args()

    from regard.interop import export_ctranslate2
    from regard.models.folder_files import resolve_model_folder

    model = resolve_model_folder(chosen.model)
    lines = (
        chosen.input.read_text("utf-8").splitlines()
        if chosen.input
        else [pair.source for pair in builtin_pairs("builtin:phrasebook-test")]
    )
    sentences = [line for line in lines if line.strip()][: chosen.sentences]
    with TemporaryDirectory() as folder:
        export_ctranslate2(model, Path(folder) / "ctranslate2", "int8")
        show(compare(model, Path(folder) / "ctranslate2", sentences, chosen))


if __name__ == "__main__":
    main()
