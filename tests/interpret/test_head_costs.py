"""What a head costs is what its ablation costs."""

import json
import math
import threading

import pytest
import torch

from looking import traced
from regard.interpret.trace import Trace


@pytest.mark.parametrize("name", ["encoder-decoder", "decoder-only", "recurrent encoder-decoder, dot"])
def test_a_head_costs_what_the_output_loses_without_it(name: str) -> None:
    trace = traced(name)
    found = trace.head_costs()
    assert len(found) == sum(len(trace.activation(n)) for n, point in trace.points.items() if point.point == "weights")
    for head in found[:3]:
        assert head.cost == pytest.approx(trace.intervene(head.intervention).cost, abs=1e-4)
        place = ".".join(str(one) for one in (head.stack, head.layer, head.part, "weights") if one is not None)
        weights = trace.activation(place)[head.head]
        expected = -(weights * weights.clamp(min=1e-30).log()).sum(-1).mean()
        assert head.entropy == pytest.approx(float(expected))
        assert 0 <= head.entropy <= math.log(weights.size(-1))
    assert json.dumps([head.as_dict() for head in found])


def test_an_encoders_heads_cost_nothing_that_is_written() -> None:
    assert {head.cost for head in traced("encoder-only").head_costs()} == {None}


def test_several_may_ask_one_trace_at_the_same_time() -> None:
    trace, alone = traced("encoder-decoder"), traced("encoder-decoder")
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
