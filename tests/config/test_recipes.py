"""Recipes: every file is a valid config with training data, and a README lists it."""

from pathlib import Path

import pytest

from regard.config import load_config

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.toml")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_recipe_is_valid_and_listed(path: Path) -> None:
    config = load_config(path)
    assert config.data.train.has_files
    if path.parent.name != "family":  # listed in docs/explanation/model-family.md
        assert path.name in (path.parent / "README.md").read_text("utf-8")
    assert (RECIPES / "README.md").read_text("utf-8").count(f"({path.parent.name})") == 1
