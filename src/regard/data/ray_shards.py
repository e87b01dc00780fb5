"""Shards tokenized by Ray, on all machines of its cluster.

The process that prepares reads the corpus and writes the result; Ray's workers tokenize. Without a cluster
(`RAY_ADDRESS`, or an address in Ray's own configuration) Ray starts on this machine.
"""

import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from regard.data.shards import Chunk, Encoded, ShardEncoder
from regard.errors import ConfigError, RunError

E = TypeVar("E")
_encoders: dict[str, Any] = {}  # of a worker, by the id of the object


def ray_submit(encoder: ShardEncoder[E]) -> tuple[Callable[[Chunk[E]], "Future[Encoded]"], int]:
    """Return a function that tokenizes a shard in Ray, and how many shards Ray can tokenize at once."""
    try:
        import ray
    except ImportError:
        raise ConfigError("data.cluster = 'ray': needs Ray; install it with: pip install 'regard[cluster]'.") from None
    if not ray.is_initialized():
        try:
            ray.init(include_dashboard=None if "RAY_ADDRESS" in os.environ else False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200].rstrip(".")
            raise RunError(f"data.cluster = 'ray': Ray cannot be reached ({reason}); check RAY_ADDRESS.") from None
    reference = ray.put(encoder)
    task = ray.remote(num_cpus=1)(_encode)

    def submit(chunk: Chunk[E]) -> "Future[Encoded]":
        future: Future[Encoded] = Future()

        def finish(done: "Future[Encoded]") -> None:
            error = done.exception()
            if error is not None:
                future.set_exception(getattr(error, "cause", None) or error)
            else:
                future.set_result(done.result())

        task.remote([reference], chunk).future().add_done_callback(finish)
        return future

    return submit, max(1, int(ray.cluster_resources().get("CPU", 1)))


def _encode(references: list[Any], chunk: Chunk[Any]) -> Encoded:
    """Tokenize a shard in a worker of Ray, which keeps the encoder and its cache of words for the next one."""
    import ray

    (reference,) = references
    if reference.hex() not in _encoders:
        _encoders.clear()
        _encoders[reference.hex()] = ray.get(reference)
    encoded: Encoded = _encoders[reference.hex()](chunk)
    return encoded
