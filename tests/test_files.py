"""Atomic writes: complete or absent, readable by others, and no leftovers."""

import errno
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch

from regard import files
from regard.errors import DataError
from regard.files import atomic_file, atomic_folder, atomic_path, explain_write_errors, write_bytes, write_text
from regard.training.checkpoint import TrainingState, write_checkpoint

WRITERS = [atomic_file, atomic_path, atomic_folder]
Writer = Callable[[Path], AbstractContextManager[object]]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("writer", WRITERS)
def test_interruption_before_the_lock_leaves_nothing(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: Path) -> int:
        assert path.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "_lock", interrupted)
    with pytest.raises(KeyboardInterrupt), writer(tmp_path / "out"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("writer", WRITERS)
def test_exception_in_the_body_leaves_the_old_content(writer: Writer, tmp_path: Path) -> None:
    if writer is not atomic_folder:
        (tmp_path / "out").write_text("old")
    before = sorted(tmp_path.iterdir())

    def fail() -> None:
        with writer(tmp_path / "out") as target:
            if isinstance(target, Path) and writer is atomic_path:
                target.write_text("new")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert sorted(tmp_path.iterdir()) == before
    assert [path.read_text() for path in before] == ["old"] * len(before)


def test_systems_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "fcntl", None)
    write_text(tmp_path / "out", "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["new"]


def test_content_is_replaced(tmp_path: Path) -> None:
    for content in ("old and longer", "new"):
        write_text(tmp_path / "out", content)
    assert (tmp_path / "out").read_text() == "new"
    for content in ("old", "new"):
        with atomic_folder(tmp_path / "folder", replace=True) as folder:
            (folder / content).write_text(content)
    assert os.listdir(tmp_path / "folder") == ["new"]
    with pytest.raises(OSError, match="not empty"), atomic_folder(tmp_path / "folder"):
        pass
    assert sorted(os.listdir(tmp_path)) == ["folder", "out"]


def test_permissions_follow_the_umask_whatever_the_library_sets(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    (tmp_path / "folder").mkdir()
    write_bytes(tmp_path / "file", b"x")
    with atomic_path(tmp_path / "named") as path:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    with atomic_folder(tmp_path / "model") as folder:
        (folder / "inner").mkdir()
        for name in ("weights", "inner/weights"):
            os.close(os.open(folder / name, os.O_CREAT | os.O_WRONLY, 0o600))
    for name in ("file", "named", "model/weights", "model/inner/weights"):
        assert mode(tmp_path / name) == mode(tmp_path / "plain"), name
    assert mode(tmp_path / "model") == mode(tmp_path / "model" / "inner") == mode(tmp_path / "folder")


def test_content_is_on_the_disk_before_it_replaces_the_old_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(descriptor: int) -> None:
        calls.append(
            "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else f"{os.fstat(descriptor).st_size} bytes"
        )
        fsync(descriptor)

    def recorded_replace(source: Path, target: Path) -> None:
        calls.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    write_bytes(tmp_path / "a", b"123")
    assert calls == ["3 bytes", "replace", "folder"]
    calls.clear()
    path = write_checkpoint(tmp_path, TrainingState(step=7), {"network": {"w": torch.zeros(4)}})
    assert calls == [f"{path.stat().st_size} bytes", "replace", "folder"]


def test_target_of_a_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_devices_are_written_to_directly() -> None:
    write_text(Path("/dev/null"), "content")
    assert Path("/dev/null").is_char_device()


WRITER = """
import sys
from pathlib import Path
from regard.files import atomic_path, write_bytes
number = 0
while True:
    number = number % 200 + 1
    write_bytes(Path(sys.argv[1]), bytes([number]) * 300_000)
    with atomic_path(Path(sys.argv[2])) as path:
        path.write_bytes(bytes([number]) * 300_000)
    print(number, flush=True)
"""


@pytest.mark.slow
def test_killed_writers_leave_complete_files_and_leftovers_are_removed(tmp_path: Path) -> None:
    names = [tmp_path / "first", tmp_path / "second"]
    for delay in (0.01, 0.03, 0.05, 0.07):
        with subprocess.Popen([sys.executable, "-c", WRITER, *map(str, names)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"1\n"
            time.sleep(delay)
            writer.kill()
        for path in names:
            content = path.read_bytes()
            assert len(content) == 300_000
            assert len(set(content)) == 1
    for path in names:
        write_text(path, "x")
    assert sorted(tmp_path.iterdir()) == sorted(names)


def test_temporary_files_of_running_writers_and_other_files_are_kept(tmp_path: Path) -> None:
    (tmp_path / ".out-notes.tmp").write_text("not ours")
    with atomic_file(tmp_path / "out") as file:
        file.write(b"slow")
        write_text(tmp_path / "out", "fast")
    assert (tmp_path / "out").read_text() == "slow"
    assert sorted(os.listdir(tmp_path)) == [".out-notes.tmp", "out"]


def test_write_errors_are_explained() -> None:
    with pytest.raises(DataError) as error, explain_write_errors(Path("out.txt")):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert str(error.value) == "out.txt: cannot be written (No space left on device); free some space."
    with pytest.raises(DataError) as error, explain_write_errors(Path("out.txt"), remedy="choose another --out"):
        raise PermissionError(errno.EACCES, "Permission denied")
    assert str(error.value) == "out.txt: cannot be written (Permission denied); choose another --out."
