"""The wording check finds what it should, and nothing else."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "tools" / "check_prose.py"
spec = importlib.util.spec_from_file_location("check_prose", SCRIPT)
assert spec is not None
assert spec.loader is not None
check_prose = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_prose)

BANNED = "be" + "haviour"  # assembled, so that this file passes the check itself


@pytest.mark.parametrize(
    "line",
    [
        f"Its {BANNED} stays.",
        f"{BANNED.capitalize()}s",
        f"def old_{BANNED}() -> None:",
        "is t" + "old its beam",
        "def t" + "old() -> None:",
        "its w" + "ish",
        "It hand" + "s over the text.",
        "Both are sett" + "led here.",
    ],
)
def test_banned_wording_is_found(line: str) -> None:
    assert [number for number, _, _ in check_prose.findings(f"fine\n{line}\n")] == [2]


@pytest.mark.parametrize(
    "line", ["Its behavior stays.", "normalization", f"{BANNED}  # prose: ignore", "retold", "settlement"]
)
def test_plain_wording_passes(line: str) -> None:
    assert not list(check_prose.findings(line))


def test_findings_exit_with_one_and_name_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_prose, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"Fine.\n\nIts {BANNED}.\n", "utf-8")
    assert check_prose.main([str(page)]) == 1
    assert f"page.md:3: '{BANNED}'" in capsys.readouterr().out
