"""The harness replaces the regions of finished benchmarks, and nothing else on the page."""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = """# Speed

Before.

<!-- benchmark: first -->
old first
<!-- end of benchmark: first -->

Between \\1 and `code`.

<!-- benchmark: second -->

old second

<!-- end of benchmark: second -->
After.
"""


@pytest.fixture(scope="module")
def harness() -> ModuleType:
    """benchmarks/run.py as a module."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        spec = importlib.util.spec_from_file_location("benchmark_run", ROOT / "benchmarks" / "run.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["benchmark_run"] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return module


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE, "utf-8")
    return path


def stub(tmp_path: Path, code: str) -> str:
    script = tmp_path / "stub.py"
    script.write_text(code)
    return str(script)


def run(harness: ModuleType, page: Path, commands: dict[str, list[str]], *options: str) -> int:
    benchmarks = [harness.Benchmark(name, [["unused.py"]], [command]) for name, command in commands.items()]
    code: int = harness.main(["--quick", "--page", str(page), *options], benchmarks)
    return code


def parts(page: Path) -> list[str]:
    """The page cut at the lines of the regions."""
    text = page.read_text("utf-8")
    for name in ("first", "second"):
        text = text.replace(f"<!-- benchmark: {name} -->", "|").replace(f"<!-- end of benchmark: {name} -->", "|")
    return text.split("|\n")


def test_only_the_regions_of_the_benchmarks_that_ran_are_replaced(
    harness: ModuleType, page: Path, tmp_path: Path
) -> None:
    before = parts(page)
    script = stub(tmp_path, r"import sys; print('speed \\1', *sys.argv[1:])")
    assert run(harness, page, {"first": [script, "--fast"], "second": [script]}, "--only", "first") == 0
    after = parts(page)
    assert [after[n] for n in (0, 2, 3, 4)] == [before[n] for n in (0, 2, 3, 4)]
    assert "old first" not in after[1]
    assert "speed \\1 --fast" in after[1]
    assert f"python benchmarks/{script} --fast" in after[1]
    assert "torch " in after[1]
    assert "wall-clock" in after[1].lower()


def test_cpu_time_is_passed_on_with_one_thread(harness: ModuleType, page: Path, tmp_path: Path) -> None:
    script = stub(tmp_path, "import os; print(os.environ['BENCHMARK_CPU_TIME'], os.environ['OMP_NUM_THREADS'])")
    assert run(harness, page, {"second": [script]}, "--cpu-time") == 0
    assert "\n1 1\n" in parts(page)[3]
    assert "CPU time" in parts(page)[3]


def test_a_failed_benchmark_keeps_its_region_and_the_next_one_runs(
    harness: ModuleType, page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = parts(page)
    script = stub(tmp_path, "import sys; print('new'); sys.exit(len(sys.argv))")
    fails, succeeds = [script, "more"], [stub_of_success(tmp_path)]
    assert run(harness, page, {"first": fails, "second": succeeds}) == 1
    assert parts(page)[1] == before[1]
    assert "fine" in parts(page)[3]
    assert "first failed with exit code 2" in capsys.readouterr().err


def stub_of_success(tmp_path: Path) -> str:
    script = tmp_path / "success.py"
    script.write_text("print('fine')")
    return str(script)


def test_an_interrupted_run_keeps_finished_tables(
    harness: ModuleType, page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, measure = parts(page), harness.run_script

    def interrupted(command: Sequence[str], *, cpu_time: bool) -> str:
        if command[-1] == "stop":
            raise KeyboardInterrupt
        output: str = measure(command, cpu_time=cpu_time)
        return output

    monkeypatch.setattr(harness, "run_script", interrupted)
    script = stub_of_success(tmp_path)
    assert run(harness, page, {"first": [script], "second": [script, "stop"]}) == 130
    assert "fine" in parts(page)[1]
    assert parts(page)[3] == before[3]


def test_a_page_without_the_region_is_an_error_before_anything_runs(
    harness: ModuleType, page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(harness, page, {"first": [stub(tmp_path, "print('new')")], "third": ["third.py"]})
    assert "no region for third" in capsys.readouterr().err
    assert page.read_text("utf-8") == PAGE


def test_the_page_has_a_region_for_every_benchmark(harness: ModuleType) -> None:
    names = [benchmark.name for benchmark in harness.BENCHMARKS]
    assert harness.missing_regions(harness.PAGE, names) == []


def test_every_command_has_options_that_its_script_knows(harness: ModuleType) -> None:
    for benchmark in harness.BENCHMARKS:
        for script, *arguments in [*benchmark.full, *benchmark.quick]:
            text = (ROOT / "benchmarks" / script).read_text("utf-8")
            assert all(f'"{part}"' in text for part in arguments if part.startswith("--")), script
