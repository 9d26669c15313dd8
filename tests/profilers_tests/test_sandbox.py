from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from profilers.errors import ProfileFailure
from profilers.sandbox import Limits, run_child

ROOM = Limits(wall_s=60.0, cpu_s=30.0, memory_bytes=256 << 20, file_bytes=1 << 20)
NAUGHTY = "tests.profilers_tests.naughty"


def run(name: str, limits: Limits = ROOM, **job: object) -> dict[str, object] | ProfileFailure:
    return run_child(f"{NAUGHTY}:{name}", job, limits=limits)


def children() -> list[psutil.Process]:
    mine = f"child.py {os.getpid()} "
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if mine in " ".join(process.info["cmdline"] or []) or process.ppid() == os.getpid()
    ]


@pytest.fixture(autouse=True)
def nothing_is_left_and_the_next_job_works() -> Iterator[None]:
    before = set(children())
    yield
    assert set(children()) <= before
    follower = run("answer", x=1)
    assert isinstance(follower, dict), follower
    assert follower["job"] == {"x": 1}


@pytest.mark.parametrize(
    ("name", "limits", "kind", "words"),
    [
        ("loop", Limits(wall_s=1.5), "timeout", "1.5 s"),
        ("stop_itself", Limits(wall_s=1.5), "timeout", "1.5 s"),
        ("loop", Limits(wall_s=60.0, cpu_s=0.2), "limits", "processor time"),
        ("segfault", ROOM, "crashed", "SIGSEGV"),
        ("leave", ROOM, "crashed", "code 3 and no answer: so long"),
        ("close_answer", ROOM, "crashed", "closed its answer"),
        ("babble", ROOM, "crashed", "no answer"),
        ("raise_an_error", ROOM, "crashed", "KeyError: 'no such thing'"),
        ("eat_memory", ROOM, "out_of_memory", "memory"),
        ("eat_memory_natively", ROOM, "out_of_memory", "bad_alloc"),
        ("fork", ROOM, "limits", "another process"),
        ("execute", ROOM, "limits", "another process"),
        ("write_much", ROOM, "limits", "1048576 bytes"),
        ("write_many", Limits(disk_bytes=8 << 20, file_bytes=1 << 20), "limits", "8388608 bytes or 10000 files"),
    ],
)
def test_a_child_that_misbehaves_is_a_typed_failure(name: str, limits: Limits, kind: str, words: str) -> None:
    failure = run(name, limits)
    assert isinstance(failure, ProfileFailure), failure
    assert (failure.kind, words in failure.reason) == (kind, True), failure


def test_endless_threads_end_as_a_failure() -> None:
    failure = run("make_threads", Limits(wall_s=10.0, memory_bytes=256 << 20))
    assert isinstance(failure, ProfileFailure)
    assert failure.kind in {"crashed", "out_of_memory", "limits", "timeout"}, failure


@pytest.mark.parametrize("name", ["loop", "stop_itself", "fork", "write_many", "eat_memory", "make_threads"])
def test_a_child_is_gone_within_its_limit_and_two_seconds(name: str) -> None:
    started = time.monotonic()
    failure = run(name, Limits(wall_s=2.0, cpu_s=60.0, memory_bytes=256 << 20, disk_bytes=8 << 20))
    assert isinstance(failure, ProfileFailure)
    assert time.monotonic() - started < 2.0 + 2.0


def test_what_a_child_prints_is_not_its_answer() -> None:
    assert run("chatter") == {"said": "a lot"}


def test_processor_time_is_not_counted_in_ticks_although_it_is_limited() -> None:
    answer = run("time_blocks")
    assert isinstance(answer, dict)
    # A clock that moves in ticks of 4 ms is behind in some blocks of 5 ms and far ahead in others.
    assert max(answer["shares"]) < 1.1  # type: ignore[call-overload]


def test_a_child_has_no_network() -> None:
    assert run("connect") == {"refused": True}


def test_a_child_may_use_threads() -> None:
    assert run("use_a_thread") == {"found": [1]}


def test_a_measuring_child_never_imports_torch_tvm_or_the_product() -> None:
    answer = run("modules")
    assert isinstance(answer, dict)
    names = answer["modules"]
    assert isinstance(names, list)
    assert {"profilers.timing", "tvm_ffi"} <= set(names)
    assert not {"torch", "tvm", "pandas", "optuna", "nas", "sklearn", "site"} & set(names)


@pytest.mark.parametrize(("mode", "level"), [(0o644, "user nobody"), (0o600, "ROOT (nobody cannot read")])
def test_root_becomes_nobody_unless_that_would_hide_the_artifact(tmp_path: Path, mode: int, level: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with tempfile.NamedTemporaryFile() as stream:  # not under tmp_path, which nobody else may enter
        Path(stream.name).chmod(mode)
        answer = run("answer_reading", file=stream.name)
    assert isinstance(answer, dict)
    assert level in str(answer["level"])


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = (
        "from profilers.sandbox import Limits, run_child\n"
        f"run_child('{NAUGHTY}:loop', {{'pid_file': {str(pid_file)!r}}}, limits=Limits())\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(Path.cwd())}) as parent:
        deadline = time.monotonic() + 60
        while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        child = psutil.Process(int(pid_file.read_text()))
        parent.send_signal(signal.SIGKILL)
    gone, alive = psutil.wait_procs([child], timeout=20)
    assert gone and not alive
