"""Head costs, and reading a trace from several threads."""

import json
import math
import threading

import pytest
import torch

from regard.interpret.trace import Trace
from traces import make_trace


@pytest.mark.parametrize("name", ["encoder-decoder", "decoder-only", "recurrent encoder-decoder, dot"])
def test_head_cost_equals_the_cost_of_its_intervention(name: str) -> None:
    trace = make_trace(name)
    heads = trace.head_costs()
    assert len(heads) == sum(len(trace.activation(n)) for n, point in trace.points.items() if point.point == "weights")
    for head in heads[:3]:
        assert head.cost == pytest.approx(trace.intervene(head.intervention).cost, abs=1e-4)
        place = ".".join(str(part) for part in (head.stack, head.layer, head.part, "weights") if part is not None)
        weights = trace.activation(place)[head.head]
        expected = -(weights * weights.clamp(min=1e-30).log()).sum(-1).mean()
        assert head.entropy == pytest.approx(float(expected))
        assert 0 <= head.entropy <= math.log(weights.size(-1))
    assert json.dumps([head.as_dict() for head in heads])


def test_heads_of_an_encoder_without_head_have_no_cost() -> None:
    assert {head.cost for head in make_trace("encoder-only").head_costs()} == {None}


def test_trace_can_be_read_from_several_threads() -> None:
    trace, alone = make_trace("encoder-decoder"), make_trace("encoder-decoder")
    wrong: list[str] = []

    def ask(trace: Trace) -> None:
        wrong.extend(name for name in trace.points if not torch.equal(trace.activation(name), alone.activation(name)))

    for name in alone.points:
        alone.activation(name)
    threads = [threading.Thread(target=ask, args=(trace,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
