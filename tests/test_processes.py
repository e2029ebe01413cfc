"""A compiler that hangs: interrupts, a limit of time, and what killed processes left."""

import contextlib
import os
import pathlib
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import run_python
from jax.experimental import serialize_executable
from support import programs, simt

import jax_elementwise as je
from jax_elementwise import _extension, _processes

pytestmark = pytest.mark.usefixtures("host_compiler", "directory")

COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), "")
LIMIT = "JAX_ELEMENTWISE_COMPILE_SECONDS"
SOON = 30.0  # seconds; far less than what hangs, far more than what does not


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A directory of temporary files of the test's own."""
    path = tmp_path / "files"
    path.mkdir()
    monkeypatch.setenv("TMPDIR", str(path))
    return path


@pytest.fixture
def hanging(tmp_path, monkeypatch):
    """A compiler that hangs at its first library. It writes the number of its child."""
    child = tmp_path / "child"
    path = tmp_path / "c++"
    path.write_text(f"""#!/bin/sh
case "$*" in
  *-shared*) if [ ! -e {child} ]; then
    sleep 1000 &
    echo $! > {child}.new
    mv {child}.new {child}
    wait
  fi;;
esac
exec {shutil.which(COMPILER)} "$@"
""")
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    yield path
    if child.exists():  # whatever failed, nothing hangs on
        with contextlib.suppress(OSError):
            os.kill(int(child.read_text()), signal.SIGKILL)


def waiting_for(what, seconds=SOON):
    """Waits until something is true."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.01)


def child_of(compiler):
    """The number of the compiler's child, which hangs, once there is one."""
    path = compiler.with_name("child")
    waiting_for(path.exists)
    return int(path.read_text())


def is_running(process):
    try:
        state = (
            pathlib.Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[0]
        )
    except FileNotFoundError:
        return False
    return state != "Z"


@contextlib.contextmanager
def python(code, **environment):
    """A new Python process; killed if the test fails before it ends."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-W", "error", "-c", code],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


FUNCTION = """
import jax, jax.numpy as jnp, jax_elementwise as je
f = je.elementwise(lambda x: jnp.sin(x) * 1.40625, lowering="kernel")
"""
CALL = FUNCTION + "print(f(jnp.ones(3)).shape)\n"


# ---- Interrupts ----------------------------------------------------------------------------------


def interrupted(code, compiler, *, by_terminal=False, **environment):
    """What a process prints that is interrupted while its compiler hangs, and its errors."""
    with python(code, **environment) as process:
        child = child_of(compiler)
        if by_terminal:  # all processes of the group
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        output, errors = process.communicate(timeout=SOON)
    assert time.monotonic() - begin < SOON
    waiting_for(lambda: not is_running(child))
    return output, errors


@pytest.mark.parametrize("by_terminal", [False, True])
def test_an_interrupt_ends_a_compilation_and_kills_the_compiler(by_terminal, hanging, files):
    output, errors = interrupted(CALL, hanging, by_terminal=by_terminal)
    assert output == ""
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert not list(files.iterdir())


def test_a_program_that_handles_interrupts_goes_on(hanging, files):
    code = f"""
import signal
signal.signal(signal.SIGINT, lambda *_: open({str(hanging.with_name("handled"))!r}, "w").close())
{FUNCTION}
print(f(jnp.ones(3)).shape)
"""
    with python(code) as process:
        child = child_of(hanging)
        os.killpg(process.pid, signal.SIGINT)
        waiting_for(hanging.with_name("handled").exists)
        os.kill(child, signal.SIGKILL)
        output, errors = process.communicate(timeout=SOON)
    assert output == "(3,)\n", errors


def test_a_function_works_after_an_interrupt(hanging, files):
    code = f"""
{FUNCTION}
try:
    f(jnp.ones(3))
except KeyboardInterrupt:
    pass
print(f(jnp.ones(3)).shape)
"""
    assert interrupted(code, hanging)[0] == "(3,)\n"


def test_an_interrupt_reaches_a_thread_that_waits_for_the_compilation_of_another(hanging):
    code = f"""
{FUNCTION}
import os, threading
threading.Thread(target=f, args=(jnp.ones(3),), daemon=True).start()
import pathlib, time
while not pathlib.Path({str(hanging.with_name("child"))!r}).exists():
    time.sleep(0.01)
try:
    je.elementwise(lambda x: jnp.sin(x) * 1.40625, lowering="kernel", name="<lambda>")(jnp.ones(3))
except KeyboardInterrupt:
    print("interrupted", je.cache_info().compilations, flush=True)
    os.kill(int(open({str(hanging.with_name("child"))!r}).read()), 9)
print(f(jnp.ones(3)).shape, je.cache_info().compilations)
"""
    with python(code) as process:
        child_of(hanging)
        time.sleep(1)  # until the main thread waits, too
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=SOON)
    assert output == "interrupted 0\n(3,) 1\n", errors


def test_who_waited_for_an_interrupted_compilation_compiles(hanging):
    code = f"""
{FUNCTION}
import os, threading, time
def work():
    while not os.path.exists({str(hanging.with_name("child"))!r}):  # not under way
        time.sleep(0.05)
    try:
        results.append(je.elementwise(lambda x: jnp.sin(x) * 1.40625, lowering="kernel")(x).shape)
    except BaseException as error:
        results.append(error)
x, results = jnp.ones(3), []
thread = threading.Thread(target=work)
thread.start()
try:
    f(x)
except KeyboardInterrupt:
    pass
thread.join()
print(results, je.cache_info()[:3])
"""
    with python(code) as process:
        child_of(hanging)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=SOON)
    assert output == "[(3,)] (1, 0, 1)\n", errors


@pytest.fixture
def program(tmp_path):
    """The path of an executable whose kernel is in no cache."""
    f = je.elementwise(lambda x: jnp.sin(x) * 1.46875, lowering="kernel")
    x = np.ones(3, np.float32)
    path = tmp_path / "program"
    data = serialize_executable.serialize(jax.jit(f).lower(x).compile())
    path.write_bytes(pickle.dumps(data))
    return path


# Where XLA asks for the kernel, in a thread that may not hold Python's lock.
LOAD = """
import pickle, sys, threading
import jax, numpy as np, jax_elementwise as je
from jax.experimental import serialize_executable
je.trust_programs()
with open({path!r}, "rb") as file:
    data = pickle.load(file)
def load():
    return serialize_executable.deserialize_and_load(*data)(np.ones(3, np.float32))
"""
COLD = {"JAX_ELEMENTWISE_CACHE_DIR": "", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}


def test_an_interrupt_ends_the_loading_of_a_program(program, hanging, files):
    """XLA may load it in a thread of its own, and Python waits; then it takes a terminal."""
    code = LOAD.format(path=str(program)) + "load()\nprint('not reached')"
    output, errors = interrupted(code, hanging, by_terminal=True, **COLD)
    assert output == ""
    # The call fails, and Python is interrupted too: whichever is shown.
    assert re.search("KeyboardInterrupt|CANCELLED: jax_elementwise: interrupted", errors)
    assert not list(files.iterdir())


def test_a_program_is_compiled_while_other_threads_hold_pythons_lock(program):
    code = f"""{LOAD.format(path=str(program))}
import concurrent.futures, faulthandler
faulthandler.dump_traceback_later(100, exit=True)
def spin():
    while not done.is_set():
        pass
done = threading.Event()
spinning = [threading.Thread(target=spin) for _ in range(3)]
[thread.start() for thread in spinning]
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    results = list(pool.map(lambda _: load().tolist(), range(4)))
done.set()
print(len(set(map(tuple, results))), je.cache_info().compilations, je.cache_info().loads)
"""
    assert run_python(code, **COLD) == "1 1 1\n"


# ---- The limit of time ---------------------------------------------------------------------------


def test_a_compiler_that_takes_too_long_is_stopped(hanging, files, monkeypatch):
    monkeypatch.setenv(LIMIT, "0.5")
    f = je.elementwise(lambda x: jnp.sin(x) * 1.5625, lowering="kernel")
    message = (
        rf"{re.escape(str(hanging))} did not end within 0\.5 s and was stopped\. .*{LIMIT} sets"
    )
    with pytest.raises(_extension.Unavailable, match=message):
        f(jnp.ones(3))
    waiting_for(lambda: not is_running(child_of(hanging)))
    assert not list(files.iterdir())


def test_auto_warns_then_and_uses_xla(hanging, monkeypatch):
    monkeypatch.setenv(LIMIT, "0.25")
    loop = je.elementwise(lambda x: jax.lax.fori_loop(0, 9, lambda _, y: y + 1.59375, x))
    with pytest.warns(UserWarning, match=rf"XLA's own operations are used: .*0\.25 s.*{LIMIT}"):
        y = loop(jnp.ones(3))
    np.testing.assert_allclose(y, [1 + 9 * 1.59375] * 3)


@pytest.mark.parametrize("value", ["0", "-1", "ten", "nan", "10 s"])
def test_the_limit_must_be_a_number_of_seconds(value, monkeypatch):
    monkeypatch.setenv(LIMIT, value)
    message = (
        f"^the environment variable {LIMIT} must be a number of seconds above 0, not '{value}'"
    )
    with pytest.raises(ValueError, match=message):
        je.elementwise(lambda x: jnp.sin(x) * 1.65625, lowering="kernel")(jnp.ones(3))


@pytest.mark.parametrize("value", ["", "1e3", "inf"])
def test_limits_that_are_far_away(value, monkeypatch):
    monkeypatch.setenv(LIMIT, value)
    f = je.elementwise(lambda x: jnp.cos(x) * 1.65625, name=f"far_{value}", lowering="kernel")
    assert f(jnp.ones(3)).shape == (3,)


# ---- What killed processes left ------------------------------------------------------------------


def compile_something():
    compile_something.serial += 1
    factor = float(os.getpid() % 10_000 * 1000 + compile_something.serial)  # in float32, too
    _extension.compile(simt.make_kernel(lambda x: x - factor, ["float32"]), _extension.HOST_CPU)


compile_something.serial = 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=str)
def test_what_a_killed_process_left_goes_at_the_next_compilation(number, hanging, files):
    with python(CALL) as process:
        child = child_of(hanging)
        process.send_signal(number)
        process.communicate(timeout=SOON)
    assert is_running(child)
    (left,) = files.iterdir()
    assert left.name.startswith("jax_elementwise.")
    compile_something()
    waiting_for(lambda: not is_running(child))
    assert not list(files.iterdir())


def test_a_live_process_keeps_its_files(hanging, files):
    with python(CALL) as process:
        child = child_of(hanging)
        (before,) = files.iterdir()
        for _ in range(3):
            compile_something()
        assert list(files.iterdir()) == [before]
        assert is_running(child)
        os.kill(child, signal.SIGKILL)  # and so the compiler goes on
        output, errors = process.communicate(timeout=SOON)
    assert output == "(3,)\n", errors
    assert not list(files.iterdir())


def test_processes_that_compile_at_once_keep_their_files(files):
    code = CALL.replace("1.40625", "NUMBER")
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(python(code.replace("NUMBER", f"1.{serial}1")))
            for serial in range(4)
        ]
        for process in processes:
            output, errors = process.communicate(timeout=120)
            assert output == "(3,)\n", errors
    assert not list(files.iterdir())


def abandoned(files, name="jax_elementwise.abcd1234", boot=None):
    """A directory as a killed process leaves it."""
    path = files / name
    path.mkdir()
    (path / "lock").write_text(_processes._boot() if boot is None else boot)
    (path / "kernel.cc").write_text("int x;")
    return path


def long_ago(path):
    os.utime(path, (time.time() - 7200,) * 2)
    return path


def test_an_abandoned_directory_goes(files):
    path = abandoned(files)
    compile_something()
    assert not path.exists()


@pytest.mark.parametrize("boot", ["", "another boot"])
def test_a_directory_of_another_machine_stays(files, boot):
    """Its process is none of this machine's, which can tell nothing of it."""
    path = long_ago(abandoned(files, boot=boot))
    compile_something()
    assert sorted(p.name for p in path.iterdir()) == ["kernel.cc", "lock"]


def test_a_directory_of_another_name_or_user_stays(files):
    paths = [abandoned(files, "jax_elementwise"), abandoned(files, "other.abcd1234")]
    if os.geteuid() == 0:
        paths.append(abandoned(files))
        os.chown(paths[-1], 12345, 12345)
    compile_something()
    assert all((path / "kernel.cc").exists() for path in paths)


def test_what_a_link_points_to_stays(files, tmp_path):
    target = abandoned(tmp_path)
    (files / "jax_elementwise.abcd1234").symlink_to(target)
    inside = abandoned(files, "jax_elementwise.efgh5678")
    (inside / "link").symlink_to(target)
    compile_something()
    assert not inside.exists()
    assert (target / "kernel.cc").exists()


def test_a_link_in_the_place_of_a_lock_is_not_followed(files, tmp_path):
    path = abandoned(files)
    (tmp_path / "elsewhere").write_text(_processes._boot())
    (path / "lock").unlink()
    (path / "lock").symlink_to(tmp_path / "elsewhere")
    compile_something()
    assert path.exists()


def test_a_directory_without_a_lock_may_be_about_to_get_one(files):
    young, old = abandoned(files), abandoned(files, "jax_elementwise.efgh5678")
    for path in (young, old):
        (path / "lock").unlink()
    long_ago(old)
    compile_something()
    assert young.exists()
    assert not old.exists()


def test_a_library_that_was_not_loaded_goes_after_an_hour(files):
    young, old, other = (files / f"jax_elementwise.{name}" for name in ("a1b2c3.so", "d.so", "x"))
    old = old.with_name("jax_elementwise.D4e5F6.so")
    for path in (young, old, other):
        path.touch()
    long_ago(old), long_ago(other)
    compile_something()
    assert [path.exists() for path in (young, old, other)] == [True, False, True]


# ---- What the compiler is given ------------------------------------------------------------------


def test_the_compiler_sees_no_terminal_no_signals_and_no_language(tmp_path, monkeypatch):
    bash = shutil.which("bash")  # other shells unblock all signals themselves
    if bash is None:
        pytest.skip("no bash")
    log = tmp_path / "log"
    path = tmp_path / "c++"
    path.write_text(f"""#!{bash}
{{
  readlink /proc/self/fd/0
  grep -E '^Sig(Blk|Ign)' /proc/self/status
  echo "LC_ALL=$LC_ALL"
}} > {log}
exec {shutil.which(COMPILER)} "$@"
""")
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    ignored = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    try:
        compile_something()
        now = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGCHLD, ignored)
    assert {signal.SIGTERM, signal.SIGCHLD} <= now  # this thread's are as they were
    stdin, *masks, language = log.read_text().splitlines()
    assert stdin == "/dev/null"
    masks = {name: int(mask, 16) for name, mask in (line.split() for line in masks)}
    assert masks["SigBlk:"] == 0
    for number in (signal.SIGPIPE, signal.SIGCHLD):
        assert not masks["SigIgn:"] >> (number - 1) & 1
    assert language == "LC_ALL=C"


@pytest.mark.parametrize("route", ["python", "xla"])
def test_what_a_compiler_writes_need_not_be_utf8(route, tmp_path, monkeypatch):
    path = tmp_path / "c++"
    text = r"""case "$*" in *-shared*) printf 'na\351 \377\n' >&2; exit 4;; esac"""
    path.write_text(f'#!/bin/sh\n{text}\nexec {shutil.which(COMPILER)} "$@"\n')
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    kernel = simt.make_kernel(lambda x: x * 1.71875, ["float32"])
    if route == "python":
        with pytest.raises(je.CompileError, match=r"na\ufffd \ufffd\n.*exit status 4"):
            _extension.compile(kernel, _extension.HOST_CPU)
        return
    x = np.ones(3, np.float32)
    _extension.trust_program(programs.attributes_of(kernel)["digest"])
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"na\ufffd \ufffd\n.*exit status 4"):
        programs.run(programs.attributes_of(kernel), (x,), programs.like(x))


def test_a_compiler_whose_path_is_not_utf8(tmp_path, monkeypatch):
    path = tmp_path / os.fsdecode(b"na\xe9") / "c++"
    path.parent.mkdir()
    path.symlink_to(shutil.which(COMPILER))
    monkeypatch.setenv("CXX", str(path))
    compile_something()
    monkeypatch.setenv("CXX", f"{path}?")
    with pytest.raises(_extension.Unavailable, match=r"that is not there: .*na\?/c\+\+\?$"):
        compile_something()
