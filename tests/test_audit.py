"""`tools/audit.sh`: fails for vulnerabilities, and says what was not audited."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "tools" / "audit.sh"


@pytest.mark.parametrize(
    ("printed", "code", "expected_code", "message"),
    [
        ("Found 1 known vulnerability in 1 package", 1, 1, "Found 1 known vulnerability"),
        ("No known vulnerabilities found", 0, 0, "No known vulnerabilities found"),
        ("ERROR: Max retries exceeded with url", 1, 0, "The vulnerability service cannot be reached; the audit is"),
        (
            "Name Skip Reason\\ntorch Dependency not found on PyPI and could not be audited: torch (2.13.0)", 0, 0,
            "1 of 1 packages were not audited: the service does not know them.",
        ),
    ],
)  # fmt: skip
def test_the_audit_of_dependencies(printed: str, code: int, expected_code: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    script = tmp_path / "tools" / "audit.sh"
    script.write_text(SCRIPT.read_text("utf-8"), "utf-8")
    (tmp_path / "constraints.txt").write_text("# pinned\ntorch==2.13.0\n", "utf-8")
    python = tmp_path / "python3"
    python.write_text(f"#!/bin/sh\n[ \"$2\" = pip ] && exit 0\nprintf '{printed}\\n'\nexit {code}\n", "utf-8")
    python.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", script], capture_output=True, text=True, env=environment)
    assert done.returncode == expected_code, done.stderr
    assert message in done.stdout
