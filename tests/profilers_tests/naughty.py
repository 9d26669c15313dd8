"""Entry points for sandboxed children that behave in every way a candidate's code might."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Seal = Callable[..., str]


def answer(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    return {"level": seal(), "job": dict(job), "pid": os.getpid()}


def answer_reading(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    level = seal(readable=[Path(job["file"])])
    Path(job["file"]).read_bytes()
    return {"level": level}


def modules(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    import profilers.timing  # noqa: F401
    from profilers.runtimes.tvm import TvmRuntime

    TvmRuntime()
    return {"modules": sorted(name for name, module in sys.modules.items() if module is not None)}


def time_blocks(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    from profilers.timing import time_block

    seal()
    return {"shares": [time_block(lambda: sum(range(100)), 5.0, 10, 1)[0]["cpu_over_wall"] for _ in range(20)]}


def chatter(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    seal()
    for stream in (sys.stdout, sys.stderr):
        stream.write('{"answer": {"forged": true}}\n' * 5000)
    return {"said": "a lot"}


def loop(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    if "pid_file" in job:
        Path(job["pid_file"]).write_text(str(os.getpid()))
    seal()
    while True:
        pass


def stop_itself(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    seal()
    time.sleep(1000)
    return {}


def segfault(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    seal()
    ctypes.string_at(0)
    return {}


def leave(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    seal()
    print("so long", flush=True)
    os._exit(3)


def close_answer(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    seal()
    os.close(int(sys.argv[2]))
    time.sleep(1000)
    return {}


def babble(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    seal()
    os.write(int(sys.argv[2]), b'{"answer": 17}')
    os._exit(0)


def eat_memory(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    seal()
    return {"eaten": len(bytearray(1 << 30))}


def eat_memory_natively(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    seal()
    allocate = ctypes.CDLL("libstdc++.so.6")["_Znwm"]  # operator new: aborts, nothing catches bad_alloc
    allocate.argtypes = [ctypes.c_size_t]
    allocate(1 << 40)
    return {}


def fork(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    seal()
    while True:
        os.fork()


def execute(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    seal()
    return {"code": os.system("sleep 1000 &")}


def write_much(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    seal()
    with Path("big").open("wb") as stream:
        while True:
            stream.write(bytes(1 << 16))


def write_many(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    seal()
    number = 0
    while True:
        number += 1
        Path(f"file-{number}").write_bytes(bytes(1 << 19))


def make_threads(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    seal()
    while True:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()


def connect(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    seal()
    try:
        socket.socket()
    except PermissionError:
        return {"refused": True}
    return {"refused": False}


def use_a_thread(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    seal()
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(1))
    thread.start()
    thread.join()
    return {"found": found}


def raise_an_error(job: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    raise KeyError("no such thing")


class LoopRuntime:
    """A runtime whose code never comes back once it is loaded."""

    file_name = "model.onnx"

    def load(self, artifact: Any, inputs: Any, num_threads: int) -> Any:
        while True:
            pass


class RecordingRuntime:
    """A runtime that leaves a trace when it is asked to load anything."""

    file_name = "model.onnx"

    def load(self, artifact: Any, inputs: Any, num_threads: int) -> Any:
        (artifact.folder / "loaded").write_text("")
        raise RuntimeError("loaded")


class CopyRuntime:
    """A third runtime in a few lines: its model returns its first input."""

    file_name = "model.onnx"

    def load(self, artifact: Any, inputs: Any, num_threads: int) -> Any:
        return CopySession(inputs)


class CopySession:
    def __init__(self, inputs: Any) -> None:
        self._inputs = inputs

    def run(self) -> object:
        return self._inputs[0].copy()

    def outputs(self, result: Any) -> list[Any]:
        return [result]
