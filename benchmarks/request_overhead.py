"""CPU time and Python calls that the server spends on one request, without a network: the model returns its input.

    python benchmarks/request_overhead.py                             # /translate and /v1/translate
    python benchmarks/request_overhead.py --baseline ../regard-0.1    # in turn with another checkout

Requests go to the ASGI application directly, one after the other, so that neither clients nor sockets count. Each
checkout runs in a process of its own, in several rounds; CPU time is that of all threads, and the median is printed.
"""

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

BODIES = {"/translate": {"q": "Good day.", "source": "en", "target": "it"}, "/v1/translate": {"text": "Good day."}}
HEADERS = {"host": "localhost:8000", "content-type": "application/json", "accept": "*/*", "user-agent": "benchmark"}
WARM_UP_CALLS = 200


def stub_app() -> Any:
    """Return the application of a server whose translator returns its input."""
    import regard
    from regard.config import EncoderDecoderConfig, TokenizerConfig
    from regard.data.tokenizer import train_tokenizer
    from regard.decoding.results import Translation
    from regard.serving.app import build_app
    from regard.serving.loaded_models import LoadedModel
    from regard.serving.service import Service

    class Echo(LoadedModel):
        def translate(self, texts: Sequence[str], options: Any) -> list[Translation]:
            return [Translation(text, text, []) for text in texts]

    tokenizer = train_tokenizer(["Good day.", "Buon giorno."], TokenizerConfig(), 300)
    settings = EncoderDecoderConfig(vocab_size=len(tokenizer), width=16, layers=1, heads=2, feed_forward=16)
    with TemporaryDirectory() as folder:
        path, files = f"{folder}/en-it", {"tokenizer.json": tokenizer.to_json()}
        regard.save(path, regard.build(settings), regard.Config(model=settings), extra_files=files)
        return build_app(Service([Echo("en-it", regard.load(path), ("en", "it"))]))


def scope_of(path: str, headers: dict[str, str]) -> dict[str, Any]:
    """Return the ASGI scope of a request, as uvicorn passes it."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 50000),
        "scheme": "http",
        "method": "POST",
        "root_path": "",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "state": {},
    }


async def send_requests(app: Any, path: str, calls: int) -> None:
    """Send requests one after the other; each must get a translation."""
    body = json.dumps(BODIES[path]).encode()
    headers = HEADERS | {"content-length": str(len(body))}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    for _ in range(calls):
        messages: list[dict[str, Any]] = []

        async def send(message: dict[str, Any], messages: list[dict[str, Any]] = messages) -> None:
            messages.append(message)

        await app(scope_of(path, headers), receive, send)
        if messages[0]["status"] != 200 or b"Good day." not in messages[1]["body"]:
            sys.exit(f"{path}: {messages}")


def measure(calls: int) -> dict[str, list[float]]:
    """Return CPU microseconds and Python calls per request of each route."""
    import uvloop

    app = stub_app()
    results = {}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for path in BODIES:
            runner.run(send_requests(app, path, WARM_UP_CALLS))
            start = time.process_time()
            runner.run(send_requests(app, path, calls))
            seconds = time.process_time() - start
            count = _count_calls(lambda path=path: runner.run(send_requests(app, path, calls)))  # type: ignore[misc]
            results[path] = [1e6 * seconds / calls, count / calls]
    return results


def _count_calls(run: Callable[[], None]) -> int:
    """Return the function calls of the event loop's thread."""
    profile = cProfile.Profile()
    profile.runcall(run)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def run_checkout(source: Path, calls: int) -> dict[str, list[float]]:
    """Measure a checkout in a process of its own."""
    command = [sys.executable, __file__, "--measure", "--calls", str(calls)]
    environment = os.environ | {"PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{source}: {done.stderr}")
    measured: dict[str, list[float]] = json.loads(done.stdout)
    return measured


def main() -> None:
    """Measure the checkouts in turn and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=2000, help="requests per route and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--baseline", type=Path, help="another checkout of regard to compare with")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.calls)))
        return
    sources = {"this checkout": Path(__file__).parents[1]} | (
        {"baseline": options.baseline} if options.baseline else {}
    )
    rounds: dict[str, list[dict[str, list[float]]]] = {name: [] for name in sources}
    for number in range(options.rounds):
        for name in sources if number % 2 == 0 else reversed(sources):
            rounds[name].append(run_checkout(sources[name], options.calls))
    print("| route | checkout | CPU per request | rounds | Python calls per request |")
    print("| --- | --- | ---: | --- | ---: |")
    for path in BODIES:
        for name, measured in rounds.items():
            times = [result[path][0] for result in measured]
            listed = ", ".join(f"{value:.0f}" for value in times)
            calls = median(result[path][1] for result in measured)
            print(f"| {path} | {name} | {median(times):.0f} µs | {listed} | {calls:.0f} |")


if __name__ == "__main__":
    main()
