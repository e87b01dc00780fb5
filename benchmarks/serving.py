"""Throughput and latency of `regard serve` at rising load, next to a minimal CTranslate2 server.

    python benchmarks/serving.py --model runs/demo                                # with its own test sentences
    python benchmarks/serving.py --model runs/en-de --input test.en --requests 10000 --clients 1 8 32 128
    python benchmarks/serving.py --model runs/demo --baseline ../regard-0.1 --peers --route /v1/translate
    python benchmarks/serving.py --model runs/demo --peers --workers 2            # one process against two

Each server runs in its own process, one after the other, in several rounds, with the same clients: each client sends
its next sentence when it has the response to the last one. The peer is a FastAPI route that calls
`ctranslate2.Translator` with the same tokenizer, 8-bit weights and beam: `defaults` with CTranslate2's default threads,
`best` with one worker of one thread per core. `--baseline` adds `regard serve` of another checkout, `--workers` one
with several processes. A response is wrong if it differs from that of the same server to the sentence alone, and lost
if there is none. The last lines compare the highest throughput with the peer's at a p99 that is no worse, and the
throughput with that of the baseline and of several workers at each number of clients.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

from regard.data.readers.builtin import builtin_pairs

CORES = len(os.sched_getaffinity(0))
REGARD = "regard serve"
BASELINE = "regard serve, baseline"
WORKERS = "regard serve, several workers"
PEERS = {"CTranslate2 + FastAPI, defaults": "defaults", "CTranslate2 + FastAPI, best threads": "best"}
WARM_UP_REQUESTS = 20
START_SECONDS = 120


@dataclass(frozen=True)
class LoadResult:
    """Measurements of one server with one number of clients."""

    requests_per_second: float
    p50: float  # seconds
    p99: float
    wrong: int
    lost: int


Results = dict[str, dict[int, list[LoadResult]]]
"""Results of all rounds, by server and number of clients."""


def run_peer(folder: str, threads: str, beam: int, port: int) -> None:
    """Run a minimal server: CTranslate2 behind a FastAPI route."""
    import ctranslate2
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    from regard.data.tokenizer import load_tokenizer

    options = {"inter_threads": CORES, "intra_threads": 1} if threads == "best" else {}
    translator: Any = ctranslate2.Translator(folder, device="cpu", **options)
    tokenizer = load_tokenizer(Path(folder) / "tokenizer.json")
    app = FastAPI()

    class PeerRequest(BaseModel):
        q: str
        source: str
        target: str

    class PeerResponse(BaseModel):
        translatedText: str  # noqa: N815  # the protocol's name

    @app.post("/translate")
    def translate(body: PeerRequest) -> PeerResponse:
        (result,) = translator.translate_batch([tokenizer.ids_to_tokens(tokenizer.encode(body.q))], beam_size=beam)
        return PeerResponse(translatedText=tokenizer.decode_tokens(result.hypotheses[0]))

    PeerRequest.model_rebuild()
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)


class Client:
    """One connection that sends one request after the other, with little overhead."""

    def __init__(self, port: int, route: str) -> None:
        self._port = port
        self._route = route
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def translate(self, sentence: str) -> str | None:
        """Return the translation of a sentence; None if the server returns none."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            fields = (
                {"q": sentence, "source": "en", "target": "it"} if self._route == "/translate" else {"text": sentence}
            )
            body = json.dumps(fields).encode()
            writer.write(
                b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (self._route.encode(), len(body), body)
            )
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(None, 1)[0])
            content = await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError, ValueError, IndexError):
            self.close()
            return None
        if not head.startswith(b"HTTP/1.1 200"):
            return None
        response = json.loads(content)
        return str(
            response["translatedText"] if self._route == "/translate" else response["translations"][0]["translation"]
        )

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


@dataclass(frozen=True)
class Workload:
    """Requests that every server gets."""

    route: str
    sentences: Sequence[str]
    requests: int
    clients: Sequence[int]

    async def measure(self, port: int) -> dict[int, LoadResult]:
        """Measure a server with each number of clients."""
        client, deadline = Client(port, self.route), time.monotonic() + START_SECONDS
        while await client.translate(self.sentences[0]) is None:
            if time.monotonic() > deadline:
                sys.exit("the server did not start")
            await asyncio.sleep(0.1)
        for sentence in self.sentences[:WARM_UP_REQUESTS]:
            await client.translate(sentence)
        expected = {sentence: await client.translate(sentence) for sentence in self.sentences}
        client.close()
        if None in expected.values():
            sys.exit("a sentence got no translation without load")
        return {clients: await self._run(port, clients, expected) for clients in self.clients}

    async def _run(self, port: int, clients: int, expected: Mapping[str, str | None]) -> LoadResult:
        """Send all requests with a number of concurrent clients."""
        numbers, latencies, wrong, lost = iter(range(self.requests)), list[float](), 0, 0

        async def send_requests() -> None:
            nonlocal wrong, lost
            client = Client(port, self.route)
            for number in numbers:
                sentence = self.sentences[number % len(self.sentences)]
                start = time.perf_counter()
                translation = await client.translate(sentence)
                latencies.append(time.perf_counter() - start)
                lost += translation is None
                wrong += translation is not None and translation != expected[sentence]
            client.close()

        start = time.perf_counter()
        await asyncio.gather(*(send_requests() for _ in range(clients)))
        seconds = time.perf_counter() - start
        percentiles = quantiles(latencies, n=100)
        return LoadResult(self.requests / seconds, percentiles[49], percentiles[98], wrong, lost)


def start_server(name: str, options: argparse.Namespace, exported: Path, port: int) -> "subprocess.Popen[bytes]":
    """Start a server in its own process."""
    environment = os.environ | {"GOMP_SPINCOUNT": "10000"}
    if name in (REGARD, BASELINE, WORKERS):
        code = "from regard.cli import main; main()"
        model = options.baseline_model if name == BASELINE and options.baseline_model else options.model
        command = [sys.executable, "-c", code, "serve", f"model[en-it]={model}", "--port", str(port)]
        command += ["--beam", str(options.beam)]
        command += ["--workers", str(options.workers)] if name == WORKERS else []
    else:
        command = [sys.executable, __file__, "--peer", str(exported), PEERS[name], str(options.beam), str(port)]
    if name == BASELINE:
        environment["PYTHONPATH"] = str(options.baseline / "src")
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment)


def free_port() -> int:
    """Return a free port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def compare(options: argparse.Namespace, exported: Path, workload: Workload) -> Results:
    """Measure all servers in turn, in several rounds."""
    names = [REGARD, *([BASELINE] if options.baseline else []), *([WORKERS] if options.workers > 1 else [])]
    names += [name for name, threads in PEERS.items() if threads in options.peers]
    results: Results = {name: {clients: [] for clients in options.clients} for name in names}
    for number in range(options.rounds):
        for name in names if number % 2 == 0 else reversed(names):
            port = free_port()
            server = start_server(name, options, exported, port)
            try:
                measured = asyncio.run(workload.measure(port))
            finally:
                server.terminate()
                server.wait()
            for clients, result in measured.items():
                results[name][clients].append(result)
                speed = f"{result.requests_per_second:,.0f} requests/s"
                print(f"round {number + 1}, {name}, {clients} clients: {speed}", file=sys.stderr)
    return results


def median_result(results: Sequence[LoadResult]) -> LoadResult:
    """Return the median over the rounds, with the sums of wrong and lost responses."""
    speed = median(result.requests_per_second for result in results)
    p50, p99 = median(result.p50 for result in results), median(result.p99 for result in results)
    wrong, lost = sum(result.wrong for result in results), sum(result.lost for result in results)
    return LoadResult(speed, p50, p99, wrong, lost)


def report(results: Results) -> None:
    """Print the results as a Markdown table, and the comparisons."""
    print("\n| server | clients | requests/s | p50 | p99 | wrong | lost |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    medians = {
        name: {clients: median_result(rounds) for clients, rounds in by_clients.items()}
        for name, by_clients in results.items()
    }
    for name, by_clients in medians.items():
        for clients, result in by_clients.items():
            latency = f"{1000 * result.p50:.1f} ms | {1000 * result.p99:.1f} ms"
            speed = f"{result.requests_per_second:,.0f}"
            print(f"| {name} | {clients} | {speed} | {latency} | {result.wrong} | {result.lost} |")
    print()
    for name in (name for name in PEERS if name in medians):
        best = max(medians[name].values(), key=lambda result: result.requests_per_second)
        speeds = [result.requests_per_second for result in medians[REGARD].values() if result.p99 <= best.p99]
        ours = max(speeds, default=0.0)
        print(
            f"{name}: {best.requests_per_second:,.0f} requests/s at a p99 of {1000 * best.p99:.0f} ms; "
            f"regard {ours:,.0f} at no worse a p99: {ours / best.requests_per_second:.2f}x"
        )
    for clients in results[REGARD]:
        for name, other, text in (
            (REGARD, BASELINE, "the baseline's"),
            (WORKERS, REGARD, "with workers, one process's"),
        ):
            if name in results and other in results:
                pairs = zip(results[name][clients], results[other][clients], strict=True)
                ratios = [one.requests_per_second / two.requests_per_second for one, two in pairs]
                listed = ", ".join(f"{ratio:.2f}" for ratio in ratios)
                print(f"{clients} clients: {median(ratios):.2f}x {text} requests/s (rounds: {listed})")


def main() -> None:
    """Compare the servers and print the results."""
    if sys.argv[1:2] == ["--peer"]:
        folder, threads, beam, port = sys.argv[2:]
        run_peer(folder, threads, int(beam), int(port))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="translator: a run or model folder")
    parser.add_argument("--input", type=Path, help="file of sentences; default: the phrasebook's test sentences")
    parser.add_argument("--sentences", type=int, default=1000, help="number of different sentences")
    parser.add_argument("--requests", type=int, default=10_000, help="requests per server, number of clients and round")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--route", choices=["/translate", "/v1/translate"], default="/translate")
    parser.add_argument("--peers", nargs="*", choices=list(PEERS.values()), default=list(PEERS.values()))
    parser.add_argument("--workers", type=int, default=1, help="also measure regard serve with this many processes")
    parser.add_argument("--baseline", type=Path, help="another checkout of regard to compare with")
    parser.add_argument("--baseline-model", type=Path, help="same model in the baseline's format; default: --model")
    options = parser.parse_args()
    if options.peers and options.route != "/translate":
        parser.error("the peers have only /translate; pass --peers without names")

    from regard.interop import export_ctranslate2
    from regard.models.folder_files import resolve_model_folder

    options.model = resolve_model_folder(options.model)
    lines = (
        options.input.read_text("utf-8").splitlines()
        if options.input
        else [pair.source for pair in builtin_pairs("builtin:phrasebook-test")]
    )
    sentences = [line for line in lines if line.strip()][: options.sentences]
    workload = Workload(options.route, sentences, options.requests, options.clients)
    with TemporaryDirectory() as folder:
        exported = Path(folder) / "ctranslate2"
        if options.peers:
            export_ctranslate2(options.model, exported, "int8")
        report(compare(options, exported, workload))


if __name__ == "__main__":
    main()
