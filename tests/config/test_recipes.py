"""Recipes: every file is a valid config with training data, and a README lists it; the paper's presets are complete."""

from pathlib import Path

import pytest

from regard.config import AdamConfig, DecodingConfig, EncoderDecoderConfig, load_config

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.toml")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_recipe_is_valid_and_listed(path: Path) -> None:
    config = load_config(path)
    assert config.data.train.has_files
    if path.parent.name != "family":  # listed in docs/explanation/model-family.md
        assert path.name in (path.parent / "README.md").read_text("utf-8")
    assert (RECIPES / "README.md").read_text("utf-8").count(f"({path.parent.name})") == 1


@pytest.mark.parametrize(
    ("preset", "width", "heads", "feed_forward", "dropout", "steps", "averaged", "every"),
    [("paper-base", 512, 8, 2048, 0.1, 100_000, 5, 1500), ("paper-big", 1024, 16, 4096, 0.3, 300_000, 20, 600)],
)
def test_the_presets_of_the_paper_are_whole_recipes(
    preset: str, width: int, heads: int, feed_forward: int, dropout: float, steps: int, averaged: int, every: int
) -> None:
    config = load_config(preset)
    model, training = config.model, config.training
    assert isinstance(model, EncoderDecoderConfig)
    assert (model.width, model.heads, model.feed_forward, model.dropout) == (width, heads, feed_forward, dropout)
    assert (model.layers, model.norm, model.norm_order, model.activation) == (6, "layer", "post", "relu")
    assert (model.positions.kind, model.attention_dropout, model.activation_dropout) == ("sinusoidal", 0, 0)
    assert (model.vocab_size, model.share_embeddings, model.tie_output) == (37_000, True, True)
    assert config.tokenizer.kind == "bpe"
    assert (training.steps, training.batch_tokens, training.gradient_accumulation) == (steps, 25_000, 1)
    assert (training.label_smoothing, training.average_checkpoints, training.patience) == (0.1, averaged, 0)
    assert training.optimizer == AdamConfig(beta1=0.9, beta2=0.98, epsilon=1e-9)
    assert config.validation.every == every  # 10 minutes at 0.4 s and 1.0 s per step
    assert (config.testing.beam, config.testing.length_penalty) == (4, 0.6)
    assert config.decoding == DecodingConfig(beam=4, length_penalty=0.6, extra_tokens=50)


@pytest.mark.parametrize("preset", ["paper-base", "paper-big"])
def test_the_presets_of_the_paper_have_its_learning_rate(preset: str) -> None:
    config = load_config(preset)
    width, schedule = config.model.width, config.training.schedule
    rate = schedule.build(width, config.training.steps)
    for step in (1, 100, 4000, 4001, 100_000):
        assert rate(step) == pytest.approx(width**-0.5 * min(step**-0.5, step * 4000**-1.5), rel=1e-5)
