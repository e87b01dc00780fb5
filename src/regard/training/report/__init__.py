"""`report.html`: a run on one page, without external files."""

from pathlib import Path

from regard.errors import ModelError
from regard.files import write_bytes
from regard.training.report.page import page
from regard.training.report.run_log import read_run_log


def write_report(run: Path) -> Path:
    """Write `report.html` from the files of a run folder, atomically, and return its path.

    Sections whose files are missing are left out; only `metrics.jsonl` is required.

        write_report(Path("runs/en-it"))  # runs/en-it/report.html
    """
    content = page(read_run_log(run)).encode("utf-8")
    report = run / "report.html"
    try:
        write_bytes(report, content)
    except OSError as error:
        raise ModelError(f"{report}: cannot be written ({error.strerror}).") from None
    return report
