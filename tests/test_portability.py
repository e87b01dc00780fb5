"""Systems without POSIX: a process that lacks what Windows lacks trains, resumes and translates."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.files import sync_folder
from small_runs import SETTINGS, write_pairs

WINDOWS = """
import asyncio, errno, fcntl, os, shutil, signal, subprocess, sys, types

import sacrebleu  # other packages have code of their own for Windows: imported before it looks like Windows

for name in ("fcntl", "resource", "pwd", "grp", "termios", "uvloop"):
    sys.modules[name] = None  # importing it fails
for name in ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGPIPE", "pthread_kill"):
    delattr(signal, name)
for name in ("sched_getaffinity", "O_NONBLOCK", "O_DIRECTORY", "fork", "getuid", "geteuid", "statvfs"):
    delattr(os, name)
flock, exclusive, opened = fcntl.flock, fcntl.LOCK_EX | fcntl.LOCK_NB, os.open

def locking(descriptor, mode, count):
    assert (mode, count) == (2, 1)
    flock(descriptor, exclusive)

def open_file(path, flags, *arguments, **options):
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "Permission denied", path)
    return opened(path, flags, *arguments, **options)

sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
os.open, shutil._use_fd_functions = open_file, False
"""
PROGRAM = (
    WINDOWS
    + """
from regard import files
assert files.fcntl is None
files.IS_WINDOWS = True
import regard.cli.resumable
regard.cli.resumable.IS_WINDOWS = True
from regard.cli import main

def run(*arguments):
    sys.argv = ["regard", *arguments]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, stop.code

data, settings = sys.argv[1], sys.argv[2:]
sets = [part for setting in settings for part in ("--set", setting)]
run("train", "translation", "--data", data, "--out", "run", "--quiet", *sets, "--set", "training.steps=2")
run("train", "--out", "run", "--resume", "--quiet", "--set", "training.steps=4")
assert "step" in open("run/metrics.jsonl").read()
open("input.txt", "w").write("one two\\nthree\\n")
run("translate", "run", "--input", "input.txt", "--output", "output.txt", "--resume")
assert len(open("output.txt").readlines()) == 2
assert not os.path.exists("output.txt.partial")

from regard.training.run_folder import RunFolder
from pathlib import Path
with RunFolder(Path("run")).lock():
    try:
        with RunFolder(Path("run")).lock():
            raise AssertionError("locked twice")
    except Exception as error:
        print(error)
"""
)


@pytest.mark.slow
def test_without_posix_a_model_is_trained_resumed_and_used(tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.tsv", 60)
    settings = [*(s for s in SETTINGS if "steps=20" not in s), "data.validation_fraction=0.1"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, data.name, *settings],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "run: another process is training here; wait for it, or stop it."


def test_only_one_module_imports_what_windows_lacks() -> None:
    package = Path(regard.__file__).parent
    pattern = re.compile(r"^\s*(?:import|from) (?:fcntl|resource|termios|pwd|grp|uvloop)\b", re.MULTILINE)
    importing = [path.relative_to(package) for path in package.rglob("*.py") if pattern.search(path.read_text("utf-8"))]
    assert importing == [Path("files.py")]  # which catches the error


def test_no_module_but_one_opens_folders_to_flush_them() -> None:
    package = Path(regard.__file__).parent
    opening = re.compile(r"os\.open\(.*(?:folder|parent).*O_RDONLY\)")
    modules = [path.relative_to(package) for path in package.rglob("*.py") if opening.search(path.read_text("utf-8"))]
    assert modules == [Path("files.py")]


def test_a_folder_that_cannot_be_opened_is_not_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", refuse)
    sync_folder(tmp_path)
