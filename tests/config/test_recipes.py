"""Every recipe can be followed: its settings are right, and it has a page."""

from pathlib import Path

import pytest

from regard.config import load_config

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.toml")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recipe_says_what_to_train_on_and_is_told_about(path: Path) -> None:
    config = load_config(path)
    assert config.data.train.has_files
    if path.parent.name != "family":  # which docs/explanation/model-family.md tells about
        assert path.name in (path.parent / "README.md").read_text("utf-8")
    assert (RECIPES / "README.md").read_text("utf-8").count(f"({path.parent.name})") == 1
