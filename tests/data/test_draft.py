"""Drafts go with whatever ends their writing, however soon it comes."""

from pathlib import Path

import pytest

from regard.data import draft
from regard.data.draft import new_draft, new_draft_file


@pytest.mark.parametrize("make", [new_draft, new_draft_file])
def test_an_interruption_before_a_draft_is_locked_leaves_nothing(
    make: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(place: Path) -> int:
        assert place.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(draft, "_lock", interrupted)
    with pytest.raises(KeyboardInterrupt), make(tmp_path / "out"):  # type: ignore[operator]
        pass
    assert list(tmp_path.iterdir()) == []


def test_without_locks_drafts_are_made_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft, "fcntl", None)
    with new_draft_file(tmp_path / "out") as file:
        assert file.exists()
    assert list(tmp_path.iterdir()) == []
