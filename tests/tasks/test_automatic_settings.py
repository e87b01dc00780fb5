"""Automatic settings: valid for any amount of data, larger for more data, each with a reason."""

import itertools

import pytest

from regard.config import Config, ConfigSource, validate_sources
from regard.data.corpus_scan import CorpusStats
from regard.interop.huggingface import unsupported_by_huggingface
from regard.tasks.bidirectional_lm import BidirectionalLMTask
from regard.tasks.classification import ClassificationTask
from regard.tasks.language_modeling import LanguageModelingTask
from regard.tasks.masked_lm import MaskedLMTask
from regard.tasks.tagging import TaggingTask
from regard.tasks.translation import TranslationTask
from regard.training.automatic_settings import AutomaticSetting, UserSettings, as_source, user_settings
from regard.training.task import NetworkTask

NETWORKS: list[tuple[NetworkTask, dict[str, object]]] = [
    (TranslationTask(), {"kind": "encoder-decoder"}),
    (LanguageModelingTask(), {"kind": "decoder-only"}),
    (TranslationTask(), {"kind": "recurrent-encoder-decoder"}),
    (LanguageModelingTask(), {"kind": "recurrent-language-model"}),
    (BidirectionalLMTask(), {"kind": "bidirectional-language-model"}),
    (MaskedLMTask(), {"kind": "encoder-only", "head": "tokens"}),
    (ClassificationTask(), {"kind": "encoder-only", "head": "classes"}),
    (TaggingTask(), {"kind": "encoder-only", "head": "tags"}),
]
ENCODERS = [(task, model) for task, model in NETWORKS if model["kind"] == "encoder-only"]
LABELING = [(task, model) for task, model in NETWORKS if task.supports_freezing]
SIZES = [1, 10, 1000, 29_000, 300_000, 10_000_000]
MEDIUM = CorpusStats(29_000, 3_600_000)


def source(model: dict[str, object]) -> ConfigSource:
    return ConfigSource("model", {"model": model})


def chosen(
    task: NetworkTask, model: dict[str, object], stats: CorpusStats, user: UserSettings | None = None
) -> list[AutomaticSetting]:
    return task.automatic_settings(stats, user or user_settings([source(model)]))


def config(task: NetworkTask, model: dict[str, object], examples: int, user: UserSettings | None = None) -> Config:
    settings = chosen(task, model, CorpusStats(examples, 100 * examples), user)
    return validate_sources([source(model), as_source(settings)])


def keys(settings: list[AutomaticSetting]) -> set[str]:
    return {setting.key for setting in settings}


def value(settings: list[AutomaticSetting], key: str) -> object:
    return next(setting.value for setting in settings if setting.key == key)


@pytest.mark.parametrize("examples", SIZES)
def test_settings_are_valid_for_any_amount_of_data(examples: int) -> None:
    for task, model in NETWORKS:
        training = config(task, model, examples).training
        assert training.steps >= config(task, model, examples).validation.every
        assert training.schedule.warmup_steps < training.steps
        assert training.patience >= 2


@pytest.mark.parametrize("examples", SIZES)
def test_fine_tuning_settings_are_valid_for_any_amount_of_data(examples: int) -> None:
    for task, model in LABELING:
        tuned = config(task, model, examples, UserSettings(fine_tuning=True))
        assert tuned.training.steps >= tuned.validation.every
        assert tuned.training.schedule.warmup_steps < tuned.training.steps


def test_more_data_gets_a_larger_network_a_larger_vocabulary_and_less_dropout() -> None:
    for task, model in NETWORKS:
        models = [config(task, model, examples).model for examples in SIZES]
        for smaller, larger in itertools.pairwise(models):
            assert smaller.width <= larger.width
            assert smaller.vocab_size <= larger.vocab_size
            assert smaller.dropout >= larger.dropout


def test_bidirectional_model_size_follows_the_amount_of_text() -> None:
    small, large = (
        chosen(BidirectionalLMTask(), {}, CorpusStats(characters // 50, characters), UserSettings())
        for characters in (100_000, 10**9)
    )
    assert (value(small, "model.width"), value(small, "tokenizer.kind")) == (256, "character")
    assert (value(large, "model.width"), value(large, "tokenizer.kind")) == (1024, "byte-level")


def test_fine_tuning_is_shorter_with_a_lower_learning_rate_and_keeps_the_network() -> None:
    user = UserSettings(fine_tuning=True)
    for task, model in LABELING:
        fresh, tuned = config(task, model, 5000), config(task, model, 5000, user)
        assert tuned.training.steps < fresh.training.steps
        assert (tuned.training.schedule.learning_rate or 0) < (fresh.training.schedule.learning_rate or 0)
        assert not keys(chosen(task, model, MEDIUM, user)) & {"model.width", "model.vocab_size", "model.layers"}


def test_every_setting_has_a_reason() -> None:
    for task, model in NETWORKS:
        for setting in chosen(task, model, MEDIUM):
            assert setting.reason
            assert not setting.reason.endswith(".")


def test_recurrent_networks_get_no_transformer_settings() -> None:
    for task, model in NETWORKS:
        if str(model["kind"]).startswith("recurrent"):
            settings = chosen(task, model, MEDIUM)
            assert not {"model.heads", "model.feed_forward"} & keys(settings)
            assert not any("GPT" in setting.reason or "Transformer" in setting.reason for setting in settings)


def test_no_validation_split_where_there_is_validation_data() -> None:
    for task, model in NETWORKS:
        assert "data.validation_fraction" not in keys(
            chosen(task, model, CorpusStats(9, 90), UserSettings(has_validation_data=True))
        )


@pytest.mark.parametrize("steps", [1, 7, 50, 500, 3000, 100_000])
def test_warmup_and_validation_follow_from_the_steps_of_the_user(steps: int) -> None:
    for task, model in NETWORKS[:4]:
        user = ConfigSource("--set", {"training": {"steps": steps}})
        settings = chosen(task, model, CorpusStats(300_000, 30_000_000), user_settings([source(model), user]))
        resolved = validate_sources([source(model), as_source(settings), user])
        assert resolved.training.schedule.warmup_steps == max(1, min(4000, steps // 10))
        assert resolved.validation.every <= steps
        assert resolved.training.patience <= max(2, steps // resolved.validation.every // 2)


def test_epochs_and_larger_batches_make_a_shorter_run() -> None:
    def warmup(**training: float) -> object:
        user = user_settings([ConfigSource("--set", {"training": training})])
        return value(chosen(LanguageModelingTask(), {}, CorpusStats(1, 3_500_000), user), key)

    key = "training.schedule.warmup_steps"
    assert warmup(epochs=10) == 240  # of 10 · 1,000,000 / 4096 steps
    assert warmup(epochs=10, batch_tokens=8192, gradient_accumulation=2) == 61


def test_the_reason_for_the_vocabulary_names_the_kind_of_tokens() -> None:
    def reason(characters: int, tokenizer: str | None = None) -> str:
        settings = chosen(LanguageModelingTask(), {}, CorpusStats(1, characters), UserSettings(tokenizer=tokenizer))
        return next(setting.reason for setting in settings if setting.key == "model.vocab_size")

    assert reason(10_000) == reason(10_000_000, "character")
    assert "one token per distinct character" in reason(10_000)
    assert reason(10_000, "byte-level") == "suits 10,000 characters of subwords"
    assert reason(10_000, "word") == "suits 10,000 characters of words"


def test_positions_cover_the_context_length_of_the_user() -> None:
    for task in (LanguageModelingTask(), MaskedLMTask()):
        settings = task.automatic_settings(CorpusStats(1, 100), UserSettings(context_length=512))
        assert value(settings, "model.positions.max_length") == 512


@pytest.mark.parametrize("invalid", [0, -3, "many", True, None, 1.5])
def test_invalid_user_settings_are_left_to_validation(invalid: object) -> None:
    settings = {"training": {"steps": invalid, "epochs": invalid}, "data": {"valid": invalid}, "tokenizer": invalid}
    chosen(LanguageModelingTask(), {}, CorpusStats(1, 100), user_settings([ConfigSource("--set", settings)]))


def test_a_start_model_means_fine_tuning() -> None:
    assert user_settings([ConfigSource("", {"training": {"start_from": "runs/x"}})]).fine_tuning
    assert not user_settings([]).fine_tuning


@pytest.mark.parametrize(("task", "model"), NETWORKS, ids=lambda value: getattr(value, "name", ""))
def test_fine_tuning_has_a_low_learning_rate_and_few_epochs(task: NetworkTask, model: dict[str, object]) -> None:
    fresh = config(task, model, 2000, UserSettings(recurrent="recurrent" in str(model["kind"]), width=128))
    user = UserSettings(fine_tuning=True, width=128)
    tuned = config(task, model, 2000, user)
    fresh_peak = fresh.training.schedule.learning_rate
    assert fresh_peak is not None
    assert tuned.training.schedule.learning_rate is not None
    assert tuned.training.schedule.learning_rate <= fresh_peak / 3
    assert tuned.training.steps < fresh.training.steps
    assert tuned.training.patience > 0
    assert not keys(chosen(task, model, MEDIUM, user)) & {
        "model.width",
        "model.vocab_size",
        "model.layers",
        "model.heads",
    }


def test_fewer_steps_do_not_raise_the_learning_rate_of_a_translator() -> None:
    def peak(steps: int, width: int = 128) -> float:
        user = UserSettings(steps=steps, width=width)
        rate = value(
            chosen(TranslationTask(), {}, CorpusStats(12_000, 1_200_000), user), "training.schedule.learning_rate"
        )
        assert isinstance(rate, float)
        return rate

    assert peak(10) == peak(100) == peak(400) == 3e-3
    assert peak(100_000) == pytest.approx((128 * 4000) ** -0.5, rel=0.05)  # the paper's
    assert peak(400, width=256) == pytest.approx(2.5e-3)
    assert peak(400, width=512) == pytest.approx(1.8e-3)
    small_batch = UserSettings(steps=400, width=128, batch_tokens=1024)
    settings = chosen(TranslationTask(), {}, CorpusStats(12_000, 1_200_000), small_batch)
    assert value(settings, "training.schedule.learning_rate") == pytest.approx(1.5e-3)


@pytest.mark.parametrize("examples", [50, 400, 4000])
def test_little_data_gets_small_batches_and_at_most_100_epochs(examples: int) -> None:
    characters = 60 * examples
    resolved = config(TranslationTask(), NETWORKS[0][1], examples)
    settings = chosen(TranslationTask(), {}, CorpusStats(examples, characters), UserSettings())
    tokens = characters / 2 / 3.5
    steps = value(settings, "training.steps")
    assert isinstance(steps, int)
    batch_tokens = next((s.value for s in settings if s.key == "training.batch_tokens"), 4096)
    assert steps / max(1, tokens / batch_tokens) <= 110
    assert 512 <= batch_tokens <= 4096
    assert resolved.training.batch_tokens <= 4096


def test_sizes_follow_the_width_of_the_user() -> None:
    user = UserSettings(width=64)
    settings = chosen(TranslationTask(), {}, MEDIUM, user)
    assert (value(settings, "model.heads"), value(settings, "model.feed_forward")) == (2, 128)
    odd = chosen(TranslationTask(), {}, MEDIUM, UserSettings(width=90))
    heads = value(odd, "model.heads")
    assert isinstance(heads, int)
    assert 90 % heads == 0


@pytest.mark.parametrize("examples", [1_000, 10_000_000])
@pytest.mark.parametrize(("task", "model"), ENCODERS, ids=[task.name for task, _ in ENCODERS])
def test_encoders_with_automatic_settings_can_be_exported(
    task: NetworkTask, model: dict[str, object], examples: int
) -> None:
    assert unsupported_by_huggingface(config(task, model, examples)) is None
