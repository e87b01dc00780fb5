"""Sizes of networks for a time: by the speed that is measured, the amount of text, or the request of the user."""

import math
from pathlib import Path

import pytest

from commands import regard
from regard.config import ConfigSource, load_sources, validate_sources
from regard.data.corpus_scan import CorpusStats
from regard.errors import ConfigError
from regard.models.assembly import build_meta
from regard.models.summary import summarize
from regard.tasks.language_modeling import LanguageModelingTask
from regard.tasks.translation import TranslationTask
from regard.training.automatic_settings import NetworkSize, UserSettings, as_source, user_settings
from regard.training.network_sizes import (
    MAX_PARAMETERS_PER_TOKEN,
    NAMED_WIDTHS,
    TOKENS_PER_PARAMETER,
    WIDTHS,
    fit_size,
    layer_parameters,
    parse_size,
)
from regard.training.speed import seconds_per_token

LARGE = CorpusStats(10**7, 10**9)
RATE = 2e11  # floating-point operations per second of a machine


def speed(size: NetworkSize) -> float:
    """Seconds per token of a machine that is as fast for any network."""
    return 6 * layer_parameters(size) / RATE


def measure(user: UserSettings) -> float:
    settings = as_source(LanguageModelingTask().automatic_settings(LARGE, user))
    config = validate_sources([ConfigSource("", {"model": {"kind": "decoder-only"}}), settings])
    return 6 * 12 * config.model.width**2 * config.model.layers / RATE


def test_more_time_gives_a_larger_network_that_sees_enough_tokens() -> None:
    fits = [fit_size(60 * minutes, 1e12, speed) for minutes in (0.1, 1, 10, 100, 1000)]
    widths = [fit.size.width for fit in fits]
    assert widths == sorted(widths)
    assert widths[0] < widths[2] < widths[-1]
    for fit in fits:
        assert fit.tokens >= TOKENS_PER_PARAMETER * layer_parameters(fit.size) or fit.size.width == WIDTHS[0]
        assert fit.tokens == pytest.approx(fit.tokens)


def test_the_speed_of_the_chosen_network_was_measured() -> None:
    """A machine that is slow for narrow networks: the first guess is wrong."""
    measured = []

    def uneven(size: NetworkSize) -> float:
        measured.append(size.width)
        return speed(size) * (1 + 512 / size.width)

    fit = fit_size(3600, 1e12, uneven)
    assert fit.size.width in measured
    assert fit.tokens == pytest.approx(3600 / (speed(fit.size) * (1 + 512 / fit.size.width)))
    assert len(measured) <= 4


def test_little_text_gets_a_larger_network_rather_than_many_passes_until_it_would_overfit() -> None:
    plenty, little, tiny = (fit_size(1800, tokens, speed) for tokens in (1e12, 5e5, 5e3))
    assert little.size.width > plenty.size.width or little.tokens / 5e5 <= 20
    assert layer_parameters(little.size) <= max(MAX_PARAMETERS_PER_TOKEN * 5e5, layer_parameters(plenty.size))
    assert layer_parameters(tiny.size) == layer_parameters(plenty.size)
    assert (plenty.size.dropout, tiny.size.dropout) == (0.0, 0.1)


@pytest.mark.parametrize("vocabulary", [300, 8000, 50_000])
@pytest.mark.parametrize("text", ["300K", "1.5M", "10M", "30m", "124M", "1B"])
def test_a_number_of_parameters_is_met(text: str, vocabulary: int) -> None:
    wanted = float(text[:-1]) * {"K": 1e3, "M": 1e6, "B": 1e9}[text[-1].upper()]
    size = parse_size(text, vocabulary)
    if vocabulary * 32 > wanted / 2:
        return  # the embeddings alone are as large
    total = layer_parameters(size) + vocabulary * size.width
    assert abs(math.log(total / wanted)) < 0.35
    sets = [f"model.{key}={value}" for key, value in (("width", size.width), ("layers", size.layers))]
    sets += [f"model.heads={size.heads}", f"model.feed_forward={size.feed_forward}", f"model.vocab_size={vocabulary}"]
    network = build_meta(validate_sources(load_sources(None, ['model.kind="decoder-only"', *sets])).model)
    assert summarize(network).parameters == pytest.approx(total, rel=0.05)


@pytest.mark.parametrize("text", ["", "huge", "10X", "-3M", "0"])
def test_an_unknown_size_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is neither tiny, small, .* nor a number of parameters; write it as in 10M"):
        parse_size(text, 8000)


@pytest.mark.parametrize("name", NAMED_WIDTHS)
def test_named_sizes_have_heads_that_divide_them(name: str) -> None:
    size = parse_size(name, 8000)
    assert size.heads is not None
    assert size.width % size.heads == 0


def test_settings_of_the_user_win_over_the_time() -> None:
    task = LanguageModelingTask()
    sources = load_sources(None, ["training.minutes=5", "model.layers=3", "training.schedule.learning_rate=0.01"])
    user = task.sized(LARGE, user_settings(sources), None, measure)
    model = ConfigSource("", {"model": {"kind": "decoder-only"}})
    config = validate_sources([model, as_source(task.automatic_settings(LARGE, user)), *sources])
    assert (config.model.layers, config.training.schedule.learning_rate) == (3, 0.01)
    assert config.training.planned_steps is not None
    assert config.training.planned_steps < config.training.steps


def test_a_network_of_the_user_keeps_its_width_and_gets_the_steps_that_fit() -> None:
    task = LanguageModelingTask()
    for minutes in (1.0, 10.0):
        user = task.sized(LARGE, UserSettings(width=256, minutes=minutes), None, measure)
        assert user.size is None
        steps = {setting.key: setting.value for setting in task.automatic_settings(LARGE, user)}
        tokens = steps["training.planned_steps"] * user.tokens_per_update(3e8)
        assert tokens == pytest.approx(60 * minutes * 0.95 / measure(user), rel=0.1)


def test_the_steps_of_the_user_are_a_limit() -> None:
    task = LanguageModelingTask()
    user = task.sized(LARGE, UserSettings(minutes=60.0, steps=50), None, measure)
    settings = {setting.key: setting.value for setting in task.automatic_settings(LARGE, user)}
    assert settings["training.planned_steps"] == 50


def test_a_size_and_a_preset_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match=r"^--size 10M: the network has a size already, by a preset"):
        LanguageModelingTask().sized(LARGE, UserSettings(width=128), "10M", measure)


def test_tasks_without_a_rule_are_fitted_to_the_time_while_they_train() -> None:
    task, user = TranslationTask(), UserSettings(minutes=10.0)
    assert task.sized(LARGE, user, None, measure) == user
    settings = {setting.key: setting.value for setting in task.automatic_settings(LARGE, user)}
    without = {setting.key: setting.value for setting in task.automatic_settings(LARGE, UserSettings())}
    assert settings["training.planned_steps"] == without["training.steps"] <= settings["training.steps"]
    with pytest.raises(ConfigError, match=r"^--size 10M: is for regard train gpt; for regard train translation, set"):
        task.sized(LARGE, user, "10M", measure)


@pytest.mark.parametrize(
    ("steps", "least"),
    [((0.9, 0.1, 0.2, 0.1, 0.4, 0.3), 0.1), ((9, 7, 1, 1), 7), ((30, 20, 1), 20), ((4, 3, 2, 2, 1), 2)],
)
def test_the_least_time_of_a_step_counts_and_slow_networks_get_fewer_steps(
    steps: tuple[float, ...], least: float
) -> None:
    now = iter(x for seconds in steps for x in (0.0, float(seconds)))
    sets = ['model.kind="decoder-only"', "model.vocab_size=50", "model.width=16", "model.layers=1", "model.heads=2"]
    sets += ["training.batch_tokens=64", "training.gradient_accumulation=2", 'training.precision="float32"']
    config = validate_sources(load_sources(None, sets))
    assert seconds_per_token(config, 16, clock=lambda: next(now)) == least / 128


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("translation", "--data", "x.tsv", "--size", "tiny"), "--size tiny: is for regard train gpt"),
        (("word2vec", "--data", "x.txt", "--minutes", "3"), "--minutes does not apply to word2vec"),
        (("gpt", "--data", "x.txt", "--minutes", "0"), "training.minutes"),
        (("gpt", "--resume", "--size", "tiny"), "--size tiny: is for a new run of regard train gpt"),
    ],
)
def test_messages_of_the_command(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.tsv").write_text("one\tuno\ntwo\tdue\n")
    Path("x.txt").write_text("one two three\n" * 9)
    done = regard("train", *arguments)
    assert done.code == 2
    assert message in done.err
