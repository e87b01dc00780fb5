"""Parts of distributed training that need one process only: messages, settings that cannot be combined, devices."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._C._distributed_c10d import HashStore, Store

from regard.config import Config, DecoderOnlyConfig, FsdpConfig, load_config
from regard.errors import ConfigError, DataError, InterruptedRun, RegardError, RunError
from regard.models import build
from regard.training.checkpoint import optimizer_tensors, restore_optimizer
from regard.training.distributed import SINGLE_PROCESS, ProcessGroup, canonical_name, gradient_norm
from regard.training.optimizers import build_optimizer
from regard.training.parallel import Parallelism, check_sharding, check_tensor_parallel
from regard.training.sharded import SplitLinear
from regard.training.shutdown import LostProcess, StopRequest, lost_process_message, rank_zero_errors
from regard.training.task import ALL_WORK

LOST = RuntimeError("[third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:52403.")
SLOW = RuntimeError(
    "[gloo/transport/tcp/unbound_buffer.cc:129] Timed out waiting 5000ms for send operation to complete"
)


def raised(error: Exception, **options: Callable[..., Any]) -> BaseException:
    with pytest.raises((Exception, SystemExit)) as caught, rank_zero_errors(**options):
        raise error
    return caught.value


def test_a_lost_connection_is_reported_by_one_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    message = lost_process_message(["rank 1 (PID 7 on node2) ended without a message"])
    error = raised(LOST, lost_process=lambda: LostProcess(message, True))
    assert isinstance(error, RunError)
    assert str(error).startswith("rank 1 (PID 7 on node2) ended without a message, so that all processes stopped.")
    assert "torchrun's --log-dir" in message
    assert "exit code or signal" in message
    assert message.endswith("continue from the last checkpoint with --resume.")
    silent = raised(LOST, lost_process=lambda: LostProcess(message, False))
    assert isinstance(silent, SystemExit)
    assert silent.code == 1
    monkeypatch.setenv("RANK", "1")  # if rank 0 is lost, another one reports, through all contexts
    lost = LostProcess(lost_process_message(["rank 0 (PID 6 on node1) ended without a message"]), True)
    outer = raised(raised(LOST, lost_process=lambda: lost))  # type: ignore[arg-type]
    assert isinstance(outer, RunError)
    assert str(outer) == lost.message


def test_a_collective_that_takes_too_long_names_the_setting() -> None:
    reported: list[BaseException] = []
    error = raised(SLOW, report_failure=reported.append)
    assert isinstance(error, RunError)
    assert "within training.collective_timeout_minutes" in str(error)
    assert str(error).endswith("continue with --resume.")
    assert [str(other) for other in reported] == [str(error)]


def test_errors_of_any_process_are_left_for_the_one_that_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    reported: list[BaseException] = []
    silent = raised(DataError("x.tsv: not found."), report_failure=reported.append)
    assert isinstance(silent, SystemExit)
    assert silent.code == DataError.exit_code
    bug = raised(ZeroDivisionError("a bug"), report_failure=reported.append)
    assert isinstance(bug, ZeroDivisionError)
    assert [str(error) for error in reported] == ["x.tsv: not found.", "a bug"]


def test_one_process_waits_for_nobody() -> None:
    assert SINGLE_PROCESS.exchange("message") == ["message"]
    with pytest.raises(RegardError, match="failed"), SINGLE_PROCESS.fail_together():
        raise RegardError("failed")
    assert list(ALL_WORK.own("abc")) == ["a", "b", "c"]
    assert ALL_WORK.total([1.0, 2.0]) == [1.0, 2.0]
    assert ALL_WORK.merge(["a"]) == ["a"]


@pytest.fixture
def store() -> Store:
    return HashStore()


def test_waiting_ends_when_another_process_has_failed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(2):
        store.set(f"process/{rank}", f"PID {rank} on node{rank}")
    first, second = (ProcessGroup(rank, 2, store=store) for rank in range(2))
    store.set("0/1", "already here")
    assert first.exchange("mine") == ["mine", "already here"]
    second.report_failure(ZeroDivisionError("a bug"))
    with pytest.raises(RuntimeError, match="is gone") as error:
        first.exchange("mine")
    message = str(raised(error.value, lost_process=first.lost_process))
    assert message.startswith("rank 1 (PID 1 on node1) failed with ZeroDivisionError: a bug, so that all processes")
    second.report_failure(DataError("x.tsv: not found; check the path."))
    assert first.lost_process() == LostProcess("x.tsv: not found; check the path.", True)


def test_the_error_of_rank_0_is_printed_once(store: Store) -> None:
    for rank in range(2):
        store.set(f"process/{rank}", f"PID {rank} on node{rank}")
    first, second = (ProcessGroup(rank, 2, store=store) for rank in range(2))
    first.report_failure(InterruptedRun("runs/x: stopped at step 7, all saved; continue with --resume."))
    assert second.lost_process() == LostProcess("runs/x: stopped at step 7, all saved; continue with --resume.", False)


def test_waiting_ends_some_time_after_a_stop_was_requested(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.training.distributed.STOP_SECONDS", 0.02)
    monkeypatch.setattr("regard.training.distributed.ANSWER_SECONDS", 0.02)
    stop = StopRequest()
    stop.requested = True
    for rank in range(2):
        store.set(f"process/{rank}", f"PID {rank} on node{rank}")
    second = ProcessGroup(1, 2, store=store, stop=stop)
    with pytest.raises(RuntimeError, match="is gone"):
        second.barrier()
    lost = second.lost_process()  # the first was killed: the second reports it
    assert lost.report
    assert lost.message.startswith("rank 0 (PID 0 on node0) ended without a message, so that all processes stopped.")


def test_shares_are_merged_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [f"sentence {number}" for number in range(7)]
    groups = [ProcessGroup(rank, 3) for rank in range(3)]
    shares = [list(group.own(items)) for group in groups]
    assert shares[1] == ["sentence 1", "sentence 4"]
    monkeypatch.setattr(ProcessGroup, "exchange", lambda group, message: [json.dumps(share) for share in shares])
    assert groups[0].merge(shares[0]) == items
    monkeypatch.setattr(ProcessGroup, "exchange", lambda group, message: [message, "[2.5, 1]", "[0.25, 0]"])
    assert groups[0].total([1, 3]) == [3.75, 4]


def model(**settings: Any) -> Config:
    return load_config(None, [f"model.{name}={value}" for name, value in settings.items()])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heads": 2, "width": 32}, "4 processes cannot share model.heads = 2 equally; choose numbers of which one"),
        ({"heads": 4, "kv_heads": 2, "width": 32}, "4 processes cannot share model.kv_heads = 2 equally"),
        ({"heads": 4, "width": 32, "feed_forward": 30}, "4 processes cannot share model.feed_forward = 30 equally"),
        ({"positions": "syntax"}, "cannot share heads with model.positions = 'syntax'; use alibi, learned,"),
        (
            {"positions": "relative", "positions.per_head": "true"},
            "cannot share heads with model.positions.per_head = true; set it to false, or use",
        ),
        ({"attention": "linformer"}, "cannot share heads with model.attention = 'linformer'; use full, window, or"),
        ({"kind": "recurrent-encoder-decoder"}, "cannot share the layers of model.kind = 'recurrent-encoder-decoder'"),
    ],
)
def test_tensor_parallelism_refuses_networks_that_it_cannot_divide(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_tensor_parallel(model(**settings), 4)
    assert str(error.value).startswith("training.parallel: ")
    assert message in str(error.value)
    check_tensor_parallel(model(heads=4, width=32, feed_forward=32), 4)


def test_the_settings_of_layouts() -> None:
    config = load_config(None, ["training.parallel=fsdp", "training.parallel.tensor_size=2"])
    assert config.training.parallel.model_dump() == {"kind": "fsdp", "tensor_size": 2, "cpu_offload": False}
    single = config.training.parallel.build(SINGLE_PROCESS)  # one process has nothing to divide
    assert type(single) is Parallelism
    with pytest.raises(ConfigError, match=r"training\.parallel"):
        load_config(None, ["training.parallel=zero"])


def test_layouts_that_the_processes_cannot_form_are_errors() -> None:
    with pytest.raises(ConfigError) as error:
        FsdpConfig(tensor_size=2).build(ProcessGroup(0, 3))
    assert str(error.value) == (
        "training.parallel.tensor_size = 2 does not divide the number of processes, 3: change it, or torchrun's "
        "--nproc-per-node."
    )
    with pytest.raises(ConfigError, match=r"training\.parallel\.cpu_offload: the network is in main memory already;"):
        FsdpConfig(cpu_offload=True).build(ProcessGroup(0, 2))


def test_float16_cannot_be_divided() -> None:
    config = load_config(None, ["training.parallel=fsdp", "training.precision=float16"])
    with pytest.raises(ConfigError) as error:
        check_sharding(config)
    assert str(error.value) == (
        "training.parallel = 'fsdp': each process has a part of the network, but training.precision = 'float16' would "
        "scale the loss of each process on its own; use 'bfloat16', or training.parallel = 'ddp'."
    )


def test_a_split_projection_computes_the_fused_one() -> None:
    torch.manual_seed(0)
    fused, x = nn.Linear(6, 8), torch.randn(3, 6)
    torch.testing.assert_close(SplitLinear(fused, [4, 2, 2])(x), fused(x))
    names = [canonical_name(f"a.{name}") for name, _ in SplitLinear(fused, [4, 4]).named_parameters()]
    assert names == ["a.weight", "a.bias"] * 2


def test_the_optimizer_state_is_restored_to_the_device_of_the_parameters() -> None:
    torch.manual_seed(0)
    config = load_config(None, ["training.optimizer=adamw"]).training.optimizer
    network = build(DecoderOnlyConfig(vocab_size=11, width=8, layers=1, heads=2, feed_forward=8))
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer = build_optimizer(network, config)
    optimizer.step()
    tensors = optimizer_tensors(optimizer, network)
    assert gradient_norm(list(network.parameters())) > 0
    elsewhere = build(DecoderOnlyConfig(vocab_size=11, width=8, layers=1, heads=2, feed_forward=8)).to("meta")
    for fused, device in ((True, "meta"), (False, "cpu")):
        other = torch.optim.AdamW(elsewhere.parameters(), fused=fused)
        restore_optimizer(other, elsewhere, tensors)
        assert len(other.state) == len(optimizer.state)
        for state in other.state.values():
            assert {key: value.device.type for key, value in state.items()} == {
                "step": device,  # which torch keeps on the CPU unless the optimizer is fused
                "exp_avg": "meta",
                "exp_avg_sq": "meta",
            }
