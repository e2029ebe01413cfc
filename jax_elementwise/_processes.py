"""Programs that the package starts, and directories for their files.

A process that is killed leaves the directory and the program that it waited for. Whoever makes a
directory next removes them. Each is locked while its process lives, so that one without its lock is
abandoned, and is in the environment of the programs that belong to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import pathlib
import re
import shutil
import signal
import stat
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence

__all__ = ["run", "work_directory"]

_PREFIX = "jax_elementwise."
_LOCK = "lock"
# A library that is being loaded is a file for some milliseconds (open_from_disk in host_kernel.cc),
# and for less a directory has no lock: one that is this old will never have one.
_LIBRARY = re.compile(r"jax_elementwise\.\w{6}\.so")
_LONG_AGO = 3600
_LONGEST_PAUSE = 0.005


# ---- Directories ---------------------------------------------------------------------------------


def _parent() -> str:
    """The directory of temporary files that the environment names now."""
    named = (os.environ.get(name) for name in ("TMPDIR", "TMP", "TEMP", "TEMPDIR"))
    parent = next(filter(None, named), "/tmp")
    return os.path.abspath(parent) if os.path.isdir(parent) else "/tmp"


@contextlib.contextmanager
def work_directory() -> Iterator[pathlib.Path]:
    """A directory of this process's own, removed at the end with what is in it.

    Raises:
      OSError: it cannot be made.
    """
    parent = _parent()
    _remove_abandoned(parent)
    path, lock = _make(parent)
    try:
        yield path
    finally:
        try:
            shutil.rmtree(path, ignore_errors=True)
        finally:
            if lock is not None:
                os.close(lock)


def _make(parent: str) -> tuple[pathlib.Path, int | None]:
    while True:
        path = pathlib.Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        try:
            return path, _locked(path)
        except (BlockingIOError, FileNotFoundError):
            continue  # another process took it for abandoned, before it was locked


def _locked(path: pathlib.Path) -> int | None:
    """The lock of a directory, taken; None in a file system that has none.

    Raises:
      BlockingIOError: somebody else has it.
      FileNotFoundError: somebody else has removed the directory.
    """
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(lock, _boot().encode())
        os.stat(path / _LOCK)
    except (BlockingIOError, FileNotFoundError):
        os.close(lock)
        raise
    except OSError:
        os.close(lock)
        return None
    return lock


@functools.cache
def _boot() -> str:
    """Names this machine since it was started: a lock of another one tells nothing here."""
    try:
        return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return ""


# ---- What killed processes left ------------------------------------------------------------------


def _remove_abandoned(parent: str) -> None:
    """Removes what killed processes of this user left, and kills their programs."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(pathlib.Path(entry.path))


def _remove_if_abandoned(path: pathlib.Path) -> None:
    status = path.lstat()
    if status.st_uid != os.geteuid():
        return
    is_old = time.time() - status.st_mtime > _LONG_AGO
    if stat.S_ISREG(status.st_mode):
        if is_old and _LIBRARY.fullmatch(path.name):
            path.unlink()
    elif stat.S_ISDIR(status.st_mode) and _is_unlocked(path, otherwise=is_old):
        _kill_programs_of(path)
        shutil.rmtree(path, ignore_errors=True)


def _is_unlocked(path: pathlib.Path, *, otherwise: bool) -> bool:
    """Tells if the process that made a directory is gone; ``otherwise`` where it has no lock."""
    try:
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return otherwise
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError: it is locked, or cannot be
        return bool(_boot()) and os.read(lock, 100) == _boot().encode()
    finally:
        os.close(lock)


def _kill_programs_of(directory: pathlib.Path) -> None:
    """Kills what ``run`` started with the directory, which its environment names, and the rest."""
    mark = b"TMPDIR=" + os.fsencode(directory)
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                _kill_if_marked(int(name), mark)


def _kill_if_marked(process: int, mark: bytes) -> None:
    handle = os.pidfd_open(process)  # or another one might get the number meanwhile
    try:
        environment = pathlib.Path("/proc", str(process), "environ").read_bytes()
        if mark in environment.split(b"\0"):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)


# ---- Programs ------------------------------------------------------------------------------------


def run(command: Sequence[str], directory: pathlib.Path, limit: float) -> tuple[str, str]:
    """Runs a program, the path of which is the first word, and waits for it.

    No shell is involved: a word reaches the program as it is. If the wait is interrupted, the
    program is killed, with all that it started.

    Args:
      command: the words.
      directory: a ``work_directory``.
      limit: seconds after which the program is killed.

    Returns:
      Why it did not end with status 0, else an empty text; and what it wrote.

    Raises:
      OSError: it cannot be started.
      TimeoutError: it did not end in time.
      KeyboardInterrupt: it was interrupted, in a thread that Python does not interrupt.
    """
    output = directory / "output"
    process = None
    try:
        process = _start(command, directory, output)
        code = _wait(process, time.monotonic() + limit)
        if code == -signal.SIGINT and not _is_main_thread():
            raise KeyboardInterrupt
    except BaseException:
        if process is not None:
            _kill(process, directory)
        raise
    text = output.read_text("utf-8", "replace") if output.exists() else ""
    if code < 0:
        return f"killed by signal {-code}", text
    return f"exit status {code}" if code else "", text


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _start(command: Sequence[str], directory: pathlib.Path, output: pathlib.Path) -> int:
    environment = os.environ | {"LC_ALL": "C", "TMPDIR": str(directory)}
    # The main thread decides what Ctrl-C does, so there a terminal must not kill the program by
    # itself. While another thread waits, which Python does not interrupt, it should.
    group = 0 if _is_main_thread() else os.getpgrp()
    return os.posix_spawn(
        command[0],
        list(command),
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setpgroup=group,
        # The thread may block signals that the program needs, and Python ignores SIGPIPE.
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGCHLD],
    )


def _kill(process: int, directory: pathlib.Path) -> None:
    with contextlib.suppress(OSError):
        os.kill(process, signal.SIGKILL)
    _kill_programs_of(directory)
    with contextlib.suppress(OSError):
        os.waitpid(process, 0)


def _wait(process: int, deadline: float) -> int:
    """Waits for the end of a process; returns its status, or the signal that ended it, negated."""
    pause = 0.0005
    while True:
        try:
            done, status = os.waitpid(process, os.WNOHANG)
        except ChildProcessError:
            return 0  # this process ignores its children: what was to be made is there, or is not
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
