"""Progress display: lines, the live terminal, throttling and unsafe text."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from regard.training.display import (
    LinesDisplay,
    Progress,
    ProgressDisplay,
    ResilientDisplay,
    Sample,
    display_for,
    progress_texts,
)
from regard.training.terminal import TerminalDisplay


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def at(step: int) -> Progress:
    return Progress(step, 20_000, 1.2, 3.2141, 3.1e-4, 9812.3, 0.71, 720.0)


def lines() -> tuple[LinesDisplay, Clock, io.StringIO]:
    clock, stream = Clock(), io.StringIO()
    return LinesDisplay(stream, clock), clock, stream


def terminal(width: int = 80) -> tuple[TerminalDisplay, Clock, io.StringIO]:
    clock, stream = Clock(), io.StringIO()
    console = Console(
        file=stream, width=width, height=30, force_terminal=True, color_system=None, markup=False, emoji=False,
        highlight=False, legacy_windows=False, _environ={},
    )  # fmt: skip
    return TerminalDisplay(stream, clock, console), clock, stream


def test_progress_is_one_line_with_all_metrics() -> None:
    display, _, stream = lines()
    display.progress(at(500))
    assert stream.getvalue() == (
        "step 500/20000  epoch 1.2  loss 3.214  learning rate 3.1e-04  9,812 tokens/s  utilization 71%  ETA 12 min\n"
    )


def test_unknown_metrics_are_left_out() -> None:
    display, _, stream = lines()
    display.progress(Progress(1, 2, 0.0, float("nan"), 0.0, float("nan"), None, float("inf")))
    assert stream.getvalue() == "step 1/2  epoch 0.0  loss nan  learning rate 0.0e+00\n"


def test_lines_are_written_every_five_seconds_and_the_last_at_once() -> None:
    display, clock, stream = lines()
    for step in range(100, 20_001, 100):
        display.progress(at(step))
        clock.seconds += 0.0625
    steps = [line.split()[1] for line in stream.getvalue().splitlines()]
    assert steps == ["100/20000", "8100/20000", "16100/20000", "20000/20000"]


def test_the_last_step_of_an_early_stop_is_written() -> None:
    display, _, stream = lines()
    display.progress(at(100))
    display.progress(at(150))
    display.close()
    display.close()
    assert [line.split()[1] for line in stream.getvalue().splitlines()] == ["100/20000", "150/20000"]


def test_the_last_line_of_a_count_is_written_at_once() -> None:
    display, _, stream = lines()
    display.count("tokenizing valid", 999, 1000)
    assert stream.getvalue() == ""
    display.count("tokenizing valid", 1000, 1000)
    assert stream.getvalue() == "tokenizing valid: 1,000 of 1,000\n"


def test_a_quick_count_gets_one_line_and_a_slow_one_several() -> None:
    display, clock, stream = lines()
    for done in range(0, 1001, 100):
        display.count("tokenizing valid", done, 1000)
    for done in range(0, 30_001, 3000):
        display.count("tokenizing train", done, 30_000)
        clock.seconds += 1
    display.count("reading", 7, None)
    display.progress(at(50))
    assert stream.getvalue().splitlines()[:-1] == [
        "tokenizing valid: 1,000 of 1,000",
        "tokenizing train: 15,000 of 30,000",
        "tokenizing train: 30,000 of 30,000",
        "reading: 7",
    ]
    assert stream.getvalue().splitlines()[-1].startswith("step 50/20000")


def test_a_validation_shows_scores_and_samples() -> None:
    display, _, stream = lines()
    display.note("model.vocab_size = 8000: suits the data.")
    display.validation(
        500, {"loss": 3.1, "perplexity": 22.2, "bleu": 12.1}, True, [Sample("I love you", "ti amo", "ti")]
    )
    display.validation(1000, {"loss": 3.0, "bits_per_byte": 2.11}, False, [Sample("Once", "", "upon\na time")])
    assert stream.getvalue().splitlines() == [
        "model.vocab_size = 8000: suits the data.",
        "validation at step 500  loss 3.100  perplexity 22.20  BLEU 12.1  best so far",
        "  source     I love you",
        "  reference  ti amo",
        "  output     ti",
        "validation at step 1000  loss 3.000  bits per byte 2.110",
        "  prompt     Once",
        "  output     upon a time",
    ]


def test_control_characters_of_samples_are_replaced() -> None:
    for display, _, stream in (lines(), terminal()):
        display.validation(1, {"loss": 1.0}, False, [Sample("\x1b[2Ja\x07\x9b\u202eb\ud800", "r", "o" * 10_000)])
        display.note("\x1b]0;title\x07")
        shown = stream.getvalue()
        assert not set("\x07\x9b\u202e\ud800") & set(shown)
        assert "\x1b[2J" not in shown
        assert "\x1b]0" not in shown
        assert "␛[2Ja␇" in shown
        assert len(shown) < 3000


def test_the_terminal_shows_a_bar_metrics_and_earlier_output() -> None:
    display, clock, stream = terminal()
    display.count("tokenizing train", 10, 20)
    display.progress(at(500))
    clock.seconds += 1
    display.validation(500, {"loss": 3.1, "bleu": 12.1}, True, [Sample("[bold]a[/] :smile:", "b", "c")])
    display.progress(at(10_000))
    display.close()
    tail = [line.split("\x1b[2K")[-1].rstrip() for line in stream.getvalue().split("\n")]
    assert "tokenizing train: 10 of 20" in tail
    row = tail.index("validation   loss  BLEU")
    assert tail[row + 1 : row + 5] == [
        "step 500    3.100  12.1  best so far",
        "  source     [bold]a[/] :smile:",
        "  reference  b",
        "  output     c",
    ]
    assert tail[-3].endswith("step 10,000 of 20,000  ETA 12 min")
    assert tail[-2] == "epoch 1.2  loss 3.214  learning rate 3.1e-04  9,812 tokens/s  utilization 71%"


@given(
    width=st.integers(1, 200),
    words=st.lists(st.text(max_size=60), min_size=3, max_size=3),
    steps=st.integers(0, 3),
    total=st.one_of(st.none(), st.integers(0, 5)),
)
def test_any_width_and_any_text_can_be_shown(width: int, words: list[str], steps: int, total: int | None) -> None:
    display, clock, stream = terminal(width)
    display.note(words[0])
    display.count(words[1], 3, total)
    display.progress(Progress(2, steps, 0.5, float("inf"), 1e-9, 0.0, None, -3.0))
    clock.seconds += 1
    display.validation(2, {"loss": float("nan"), "perplexity": 1e12}, True, [Sample(*words)])
    display.progress(at(3))
    display.close()
    assert stream.getvalue().endswith("\n")


def test_lines_never_wrap_in_the_live_area() -> None:
    for width in (20, 40, 60, 80):
        display, _, stream = terminal(width)
        display.progress(at(500))
        display.close()
        last = stream.getvalue().split("\x1b[2K")[-1].splitlines()
        assert all(len(line.rstrip()) <= width for line in last)
        assert any("step 500 of 20,000" in line for line in last)


def test_drawing_is_throttled() -> None:
    display, clock, stream = terminal()
    for step in range(1000):
        display.progress(at(step))
        clock.seconds += 0.001
    assert stream.getvalue().count("epoch") <= 12
    display.close()
    assert "step 999 of" in stream.getvalue()


class Closed(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def test_a_closed_terminal_is_ignored() -> None:
    console = Console(file=Closed(), force_terminal=True, _environ={})
    for wrapped in (LinesDisplay(Closed()), TerminalDisplay(Closed(), console=console)):
        display = ResilientDisplay(wrapped)
        display.note("a")
        display.count("b", 1, None)
        display.progress(at(1))
        display.validation(1, {"loss": 1.0}, True, [Sample("a", "b", "c")])
        display.close()


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_display_suits_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    assert isinstance(display_for(Screen()), TerminalDisplay)
    assert isinstance(display_for(io.StringIO()), LinesDisplay)
    assert type(display_for(Screen(), quiet=True)) is ProgressDisplay
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(display_for(Screen()), LinesDisplay)


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)

    def shown() -> str:
        stream = Screen()
        display = display_for(stream)
        display.validation(1, {"loss": 1.0}, True, [Sample("a", "b", "c")])
        display.progress(at(500))
        display.close()
        return stream.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[36m" in shown()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in shown()


def test_the_quiet_display_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    display = ProgressDisplay()
    display.note("a")
    display.count("b", 1, None)
    display.progress(at(1))
    display.validation(1, {}, True, [])
    display.close()
    assert capsys.readouterr() == ("", "")


def test_classifiers_show_labels_per_second() -> None:
    assert "12 labels/s" in progress_texts(Progress(1, 2, 0.0, 0.7, 1e-3, 12.0, None, None, "labels"))
