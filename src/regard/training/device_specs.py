"""Devices that training can be planned for: a table of common GPUs, this machine's CPU as measured, or custom numbers.

Peak rates are those of the vendors' data sheets for dense matrices; `matmul_efficiency` and `bandwidth_efficiency` are
the parts of them that large operations usually reach. A CPU has no data sheet that says how fast it computes a
softmax or draws random numbers, so the rates of each kind of operation are measured, in a second.
"""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch.nn import functional as F

from regard.config import did_you_mean
from regard.errors import ConfigError
from regard.machine import processor_name
from regard.training.environment import matmul_gflops
from regard.training.step_trace import Work

GB = 1e9
GIB = 2**30
TFLOPS = 1e12
MAX_DEVICES = 65_536
DEVICES_PER_NODE = 8
MATMUL_EFFICIENCY = 0.65  # of the peak, for the shapes of large networks
CPU_MATMUL_EFFICIENCY = 0.9
ATTENTION_EFFICIENCY = 0.4  # fused attention, forward and backward
BANDWIDTH_EFFICIENCY = 0.8
HOST_SECONDS_PER_CALL = 6e-6  # Python and PyTorch start an operation; a GPU computes meanwhile
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CPU_PRECISIONS = ("float32", "bfloat16")
MATMUL_SIZE = 1024
PCIE = 25.0  # GB/s that PCIe 4.0 x16 reaches between two GPUs
NETWORK = 25.0  # GB/s per node of a 200 Gbit/s network


@dataclass(frozen=True)
class Device:
    """What the cost model knows about a device."""

    name: str
    memory: float
    """Bytes."""
    peaks: Mapping[str, float]
    """FLOP/s of matrix products by `training.precision`."""
    bandwidth: float
    """Bytes per second of the device's memory."""
    link: float
    """Bytes per second that a device sends to another of the same node, while it receives as many."""
    link_latency: float = 10e-6
    """Seconds of one message."""
    network: float = NETWORK * GB
    """Bytes per second that a node sends to another one."""
    matmul_efficiency: float = MATMUL_EFFICIENCY
    rates: Mapping[str, float] = field(default_factory=dict)
    """Measured elements or bytes per second by kind of operation, for a CPU."""
    seconds_per_call: float = HOST_SECONDS_PER_CALL
    is_cpu: bool = False

    def precision(self, requested: str) -> str:
        """Return the precision that is used: a slower one than float32 is not."""
        return requested if self.peaks.get(requested, 0.0) > self.peaks["float32"] else "float32"

    def seconds(self, work: Mapping[str, Work], precision: str) -> float:
        """Return the time of operations, one after the other.

        On a GPU an operation takes as long as its computation or its memory traffic, whichever is longer, and the host
        starts operations while earlier ones run. A CPU does one thing at a time.
        """
        calls = sum(item.calls for item in work.values())
        busy = sum(self._seconds(kind, item, self.peaks[precision]) for kind, item in work.items())
        return busy + calls * self.seconds_per_call if self.is_cpu else max(busy, calls * self.seconds_per_call)

    def _seconds(self, kind: str, work: Work, peak: float) -> float:
        if kind == "view":
            return 0.0
        if self.is_cpu:
            return self._cpu_seconds(kind, work, peak)
        efficiency = ATTENTION_EFFICIENCY if kind == "attention" else self.matmul_efficiency
        return max(work.flops / (peak * efficiency), work.bytes / (self.bandwidth * BANDWIDTH_EFFICIENCY))

    def _cpu_seconds(self, kind: str, work: Work, peak: float) -> float:
        if work.flops:
            return work.flops / (peak * self.matmul_efficiency) + work.bytes / self.rates["elementwise"]
        if kind in ("transcendental", "random"):
            return work.elements / self.rates[kind]
        return work.bytes / self.rates["gather" if kind == "gather" else "elementwise"]

    def stream_seconds(self, size: float) -> float:
        """Return the time to read or write this many bytes of memory."""
        return size / (self.rates["stream"] if self.is_cpu else self.bandwidth * BANDWIDTH_EFFICIENCY)


def _gpu(
    name: str,
    memory: float,
    bfloat16: float | None,
    float32: float,
    bandwidth: float,
    link: float = PCIE,
    float16: float | None = None,
) -> Device:
    """Memory in GiB, rates in TFLOP/s, bandwidth and link in GB/s; float16 is as fast as bfloat16 by default."""
    rates = {"float32": float32, "bfloat16": bfloat16, "float16": float16 or bfloat16}
    peaks = {precision: rate * TFLOPS for precision, rate in rates.items() if rate is not None}
    return Device(name, memory * GIB, peaks, bandwidth * GB, link * GB)


DEVICES = {
    device.name: device
    for device in (
        # name, GiB, TFLOP/s in bfloat16 and float32, GB/s of memory and of the link
        _gpu("A100-40GB", 40, 312, 19.5, 1555, 240),
        _gpu("A100-80GB", 80, 312, 19.5, 2039, 240),
        _gpu("H100-80GB", 80, 989, 66.9, 3350, 360),
        _gpu("H200-141GB", 141, 989, 66.9, 4800, 360),
        _gpu("B200-180GB", 180, 2250, 80, 8000, 720),
        _gpu("A10G", 24, 70, 31.2, 600),
        _gpu("L4", 24, 121, 30.3, 300, 12),
        _gpu("L40S", 48, 362, 91.6, 864),
        _gpu("T4", 16, None, 8.1, 320, 12, float16=65),
        _gpu("V100-16GB", 16, None, 15.7, 900, 120, float16=125),
        _gpu("V100-32GB", 32, None, 15.7, 900, 120, float16=125),
        _gpu("P100", 16, None, 9.3, 732, 12, float16=18.7),
        _gpu("RTX-3090", 24, 71, 35.6, 936),
        _gpu("RTX-4090", 24, 165, 82.6, 1008),
        _gpu("M2-Max", 64, None, 13.6, 400),
        _gpu("M3-Max", 96, None, 14.2, 400),
    )
}


def parse_devices(text: str) -> tuple[int, str]:
    """Parse `8xA100-80GB`: a number of devices and their name; the number is 1 by default.

    >>> parse_devices("8xA100-80GB"), parse_devices("cpu")
    ((8, 'A100-80GB'), (1, 'cpu'))
    """
    match = re.fullmatch(r"(?:(\d+)\s*[x×*]\s*)?(\S.*)", text.strip())
    if match is None:
        raise ConfigError(f"--devices {text!r}: should be a number and a device, as in 8xA100-80GB.")
    count = int(match[1] or 1)
    if not 1 <= count <= MAX_DEVICES:
        raise ConfigError(f"--devices {text}: the number of devices is {count}; use 1 to {MAX_DEVICES:,}.")
    return count, match[2]


def find_device(name: str) -> Device:
    """Return the device of a name in the table, `cpu`, or one of several sizes by its shorter name."""
    if name.lower() == "cpu":
        return measure_cpu()
    by_key = {_key(device): device for device in DEVICES}
    found = by_key.get(_key(name))
    if found is None:  # A100 is ambiguous, T4-16GB too exact
        similar = [device for key, device in by_key.items() if key.startswith(_key(name))]
        if similar:
            raise ConfigError(f"--devices {name}: there are several; choose {' or '.join(similar)}.")
        raise ConfigError(
            f"--devices {name}: is not a known device{did_you_mean(name, [*DEVICES, 'cpu'])}; the devices are "
            f"{', '.join(DEVICES)} and cpu. For others, pass --device-memory, --device-tflops and --link-gbps."
        )
    return DEVICES[found]


def _key(name: str) -> str:
    return re.sub(r"[\s_-]|nvidia|apple|geforce", "", name.lower())


def custom_device(name: str, memory: float | None, tflops: float | None, bandwidth: float | None) -> Device:
    """Return a device by its numbers: GiB, TFLOP/s in the precision of training, and GB/s of its memory."""
    if memory is None or tflops is None:
        raise ConfigError(
            f"--devices {name}: a custom device needs --device-memory (GiB) and --device-tflops; pass both."
        )
    peaks = dict.fromkeys(DTYPES, tflops * TFLOPS)
    peaks["float32"] *= 0.999  # equal rates: the precision that was requested counts
    return Device(name, memory * GIB, peaks, (bandwidth or 1000.0) * GB, PCIE * GB)


def measure_cpu(threads: int | None = None) -> Device:
    """Measure this machine: matrix products, each kind of operation on tensors of a few MB, memory, and calls."""
    previous = torch.get_num_threads()
    torch.set_num_threads(threads or previous)
    try:
        with torch.no_grad():
            rates = _measure_rates()
            peaks = {name: _matmul_peak(DTYPES[name]) for name in CPU_PRECISIONS}
        call = _seconds_per_call()
    finally:
        torch.set_num_threads(previous)
    return Device(
        f"cpu ({processor_name()})",
        memory=_main_memory(),
        peaks=peaks,
        bandwidth=rates["stream"],
        link=rates["stream"] / 4,  # gloo copies each message into a buffer and out of it, and reads it to add
        link_latency=100e-6,
        matmul_efficiency=CPU_MATMUL_EFFICIENCY,
        rates=rates,
        seconds_per_call=call,
        is_cpu=True,
    )


def _measure_rates() -> dict[str, float]:
    size = 2**20
    a, b, out = (torch.rand(size // 256, 256) for _ in range(3))
    large = torch.rand(2**24)  # 64 MB: more than a cache
    words = torch.empty(size // 8, dtype=torch.int64)
    rows, order = torch.rand(size // 64, 64), torch.randperm(size // 64)
    gathered, weight = torch.empty_like(rows), torch.ones(256)
    transcendental = (
        _best(lambda: F.gelu(a)) + _best(lambda: a.softmax(-1)) + _best(lambda: F.layer_norm(a, (256,), weight, weight))
    )
    return {
        "elementwise": 12 * size / _best(lambda: torch.add(a, b, out=out)),
        "transcendental": 3 * size / transcendental,
        "random": words.numel() / _best(lambda: words.random_(-(2**63), None)),
        "gather": 8 * size / _best(lambda: torch.index_select(rows, 0, order, out=gathered)),
        "stream": 8 * large.numel() / _best(lambda: large.mul_(1.0), 3),
    }


def _matmul_peak(dtype: torch.dtype) -> float:
    """FLOP/s of a large matrix product."""
    if torch.get_num_threads() > 1:
        return matmul_gflops(torch.device("cpu"), dtype) * 1e9
    a, b = (torch.ones(MATMUL_SIZE, MATMUL_SIZE, dtype=dtype) for _ in range(2))
    return 2 * MATMUL_SIZE**3 / _best(lambda: a @ b, 5)


def _best(function: Callable[[], object], repeats: int = 15) -> float:
    """The shortest time of a few calls: other programs can only make it longer.

    With one thread it is the time of the processor, without that of other programs on the same core.
    """
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    best = float("inf")
    for _ in range(repeats):
        started = clock()
        function()
        best = min(best, clock() - started)
    return best


def _seconds_per_call(calls: int = 200) -> float:
    """Time of an operation on a single number, forward and backward: what Python and PyTorch add to any operation."""
    x = torch.ones(1, requires_grad=True)

    def run() -> None:
        y = x
        for _ in range(calls):
            y = y * 1.0
        y.backward()

    return _best(run, 10) / (2 * calls)


def _main_memory() -> float:
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return 8.0 * GIB


def with_options(device: Device, *, link: float | None, network: float | None) -> Device:
    """Return the device with other links, in GB/s."""
    own = replace(device, link=device.link if link is None else link * GB)
    return own if network is None else replace(own, network=network * GB)
