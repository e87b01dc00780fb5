"""Throughput and latency of `regard serve` with a language model at rising numbers of streams.

    python benchmarks/streams.py                                         # a GPT with 6 layers and width 384
    python benchmarks/streams.py --baseline ../regard-old --rounds 3     # next to another checkout
    python benchmarks/streams.py --model runs/book --engine auto --clients 1 8 32

Each client streams completions of `/v1/completions`, one after the other; all servers and numbers of clients get the
same requests, with prompts, lengths and seeds of their own. Without `--model`, the network has random weights: its
speed is that of a trained one. The servers run in their own processes and take turns. Beside tokens per second, the
table has the CPU time of the server per token, which other programs change little; the time to the first text; the time
between two texts of a stream; and how many texts differ from those of the same server to one client.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

from common import print_markdown, with_spread

from decoding import make_language_model
from regard.data.readers.builtin import builtin_documents
from serving import START_SECONDS, free_port

REGARD = "regard serve"
BASELINE = "regard serve, baseline"
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class StreamTimes:
    """What the clients of one run have seen."""

    first: list[float] = field(default_factory=list)  # seconds to the first text of each stream
    between: list[float] = field(default_factory=list)  # seconds between texts
    texts: dict[int, str] = field(default_factory=dict)  # by the number of the request
    tokens: int = 0


@dataclass(frozen=True)
class LoadResult:
    """Measurements of one server with one number of clients."""

    tokens_per_second: float
    cpu_ms: float  # per token
    times: StreamTimes
    wrong: int


Results = dict[str, dict[int, list[LoadResult]]]
"""Results of all rounds, by server and number of clients."""


def make_requests(count: int, tokens: int) -> list[dict[str, Any]]:
    """Return completion requests: beginnings of documents, with lengths from a half to one and a half of `tokens`."""
    numbers = random.Random(1)
    documents = ["".join(document) for document in builtin_documents("builtin:python-docs")]
    requests: list[dict[str, Any]] = []
    while len(requests) < count:
        text = numbers.choice(documents)
        start = numbers.randrange(max(1, len(text) - 300))
        sampling = {"temperature": numbers.choice([0, 1, 1]), "top_k": 50, "seed": len(requests)}
        prompt = text[start : start + numbers.randrange(20, 200)]
        length = numbers.randrange(tokens // 2, tokens * 3 // 2)
        requests.append({"model": "gpt", "prompt": prompt, "max_tokens": length, "stream": True, **sampling})
    return requests


async def stream_completion(port: int, number: int, request: dict[str, Any], times: StreamTimes) -> None:
    """Stream one completion and add its times."""
    body = json.dumps({**request, "stream_options": {"include_usage": True}}).encode()
    start = last = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        sys.exit(f"a request failed: {(head + await reader.read()).decode()}")
    texts: list[str] = []
    while line := await reader.readline():
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        times.tokens += (event.get("usage") or {}).get("completion_tokens", 0)
        if event["choices"] and event["choices"][0]["text"]:
            now = time.perf_counter()
            (times.between if texts else times.first).append(now - (last if texts else start))
            last = now
            texts.append(event["choices"][0]["text"])
    writer.close()
    times.texts[number] = "".join(texts)


async def run_clients(port: int, clients: int, requests: Sequence[dict[str, Any]]) -> StreamTimes:
    """Stream all requests with a number of concurrent clients."""
    times, numbers = StreamTimes(), iter(range(len(requests)))

    async def client() -> None:
        for number in numbers:
            await stream_completion(port, number, requests[number], times)

    await asyncio.gather(*(client() for _ in range(clients)))
    return times


def cpu_seconds(process: int) -> float:
    """Return the CPU time of all threads of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


async def wait_for_server(port: int, request: dict[str, Any]) -> None:
    """Wait until the server responds, and warm it up."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            await stream_completion(port, 0, request, StreamTimes())
        except OSError:
            if time.monotonic() > deadline:
                sys.exit("the server did not start")
            await asyncio.sleep(0.2)
        else:
            return


def measure(name: str, options: argparse.Namespace, model: Path) -> dict[int, LoadResult]:
    """Start a server and measure it with each number of clients."""
    port, requests = free_port(), make_requests(options.requests, options.tokens)
    environment = os.environ | {"GOMP_SPINCOUNT": "10000"}
    if name == BASELINE:
        environment["PYTHONPATH"] = str(options.baseline / "src")
    command = [sys.executable, "-c", "from regard.cli import main; main()", "serve", f"gpt={model}"]
    command += ["--port", str(port), "--engine", options.engine, "--timeout", "600", "--quiet"]
    server = subprocess.Popen(command, env=environment)
    results: dict[int, LoadResult] = {}
    expected: dict[int, str] | None = None
    try:
        asyncio.run(wait_for_server(port, requests[0]))
        for clients in sorted({1, *options.clients}):
            before, start = cpu_seconds(server.pid), time.perf_counter()
            times = asyncio.run(run_clients(port, clients, requests))
            seconds, used = time.perf_counter() - start, cpu_seconds(server.pid) - before
            expected = expected or times.texts
            wrong = sum(text != expected[number] for number, text in times.texts.items())
            results[clients] = LoadResult(times.tokens / seconds, 1000 * used / times.tokens, times, wrong)
    finally:
        server.terminate()
        server.wait()
    return results


def compare(options: argparse.Namespace, model: Path) -> Results:
    """Measure all servers in turn, in several rounds."""
    names = [REGARD, *([BASELINE] if options.baseline else [])]
    results: Results = {name: {} for name in names}
    for turn in range(options.rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            for clients, result in measure(name, options, model).items():
                results[name].setdefault(clients, []).append(result)
                line = f"{result.tokens_per_second:,.0f} tokens/s, {result.cpu_ms:.2f} ms of CPU per token"
                print(f"round {turn + 1}, {name}, {clients} clients: {line}", file=sys.stderr)
    return results


def milliseconds(values: Sequence[float]) -> str:
    """Return the median and the 99th percentile."""
    return f"{1000 * median(values):.1f} / {1000 * quantiles(values, n=100)[98]:.1f} ms"


def report(results: Results) -> None:
    """Print the results as a Markdown table, and the ratios to the baseline."""
    rows = [("", "streams", "tokens/s", "CPU per token", "first text, median / p99", "between texts", "wrong")]
    for name, by_clients in results.items():
        for clients, rounds in by_clients.items():
            first = [value for result in rounds for value in result.times.first]
            between = [value for result in rounds for value in result.times.between]
            speed = with_spread([result.tokens_per_second for result in rounds])
            used = with_spread([result.cpu_ms for result in rounds], ".2f")
            wrong = str(sum(result.wrong for result in rounds))
            rows.append((name, str(clients), speed, f"{used} ms", milliseconds(first), milliseconds(between), wrong))
    print_markdown(rows)
    print()
    for clients, theirs in results.get(BASELINE, {}).items():
        pairs = list(zip(results[REGARD][clients], theirs, strict=True))
        speeds = [own.tokens_per_second / other.tokens_per_second for own, other in pairs]
        costs = [other.cpu_ms / own.cpu_ms for own, other in pairs]
        print(
            f"{clients} streams: {with_spread(speeds, '.2f')}x the baseline's tokens per second, "
            f"{with_spread(costs, '.2f')}x its tokens per CPU second"
        )


def main() -> None:
    """Compare the servers and print the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, help="language model; default: random weights, 6 layers, width 384")
    parser.add_argument("--requests", type=int, default=48, help="requests per server, number of clients and round")
    parser.add_argument("--tokens", type=int, default=100, help="mean length of a completion")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--engine", default="torch", choices=["auto", "torch", "ctranslate2"])
    parser.add_argument("--baseline", type=Path, help="another checkout of regard to compare with")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        if options.model is None:
            make_language_model(Path(folder))
        report(compare(options, options.model or Path(folder) / "model"))


if __name__ == "__main__":
    main()
