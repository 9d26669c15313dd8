"""The checks of `nas doctor`, one function each; none raises for what it finds."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from nas.doctor.devices import canaries_text
from nas.doctor.finding import Finding
from nas.errors import NasError
from profilers.device import DeviceSpec, local_device
from profilers.enrolment import Enrolment, EnrolmentStore, default_store
from profilers.errors import ProfileFailure, ProfilerError
from profilers.lock import DeviceBusyError, device_lock, state_folder
from profilers.runtimes.runtime import RUNTIMES

CRASHING_FFI = ("0.1.15.post1", "0.1.15.post2")
"""apache-tvm-ffi versions that end in a segmentation fault when MetaSchedule builds a TuneContext."""

PINNED_TVM, PINNED_FFI = "0.27.0.post1", "0.1.14.post1"
_LEAST_FREE_BYTES = 2 << 30
_LONGEST_START_S = 0.4
_TUNING_TIMEOUT_S = 120.0

Show = Callable[[Finding], None]


def run_checks(
    *,
    num_threads: int,
    num_pairs: int | None,
    study: Path | None,
    lock_timeout_s: float,
    show: Show,
    note: Callable[[str], None],
) -> list[Finding]:
    """Runs every check, quick ones first, and shows each finding as it comes.

    Raises:
        ProfilerError: a number of threads this machine does not have.
    """
    from nas.doctor.noise_check import check_noise

    device, store = local_device(num_threads), default_store()
    findings = []
    for finding in _quick_checks(device, store, study):
        findings.append(finding)
        show(finding)
    last = check_noise(device, store, num_pairs, lock_timeout_s, note)
    show(last)
    return [*findings, last]


def _quick_checks(device: DeviceSpec, store: EnrolmentStore, study: Path | None) -> Iterator[Finding]:
    yield check_versions(_installed)
    yield check_cache(state_folder())
    yield from check_children()
    yield check_lock()
    yield check_databases(device, state_folder(), study)
    yield check_data()
    yield check_tuning()
    yield check_canaries(store.load(device))


def check_canaries(known: Enrolment) -> Finding:
    """Whether the canaries have a baseline, and whether the device is as fast as it."""
    state: Literal["good", "warning", "unknown"] = "good" if known.canaries else "unknown"
    return Finding(name="canaries", state="warning" if known.spells else state, text=canaries_text(known))


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_versions(installed: Callable[[str], str | None]) -> Finding:
    """Versions that are known to crash, or that this program was not written for."""
    tvm, ffi, onnxruntime = installed("apache-tvm"), installed("apache-tvm-ffi"), installed("onnxruntime")
    if tvm is None or ffi is None or onnxruntime is None:
        missing = [
            n for n, v in (("apache-tvm", tvm), ("apache-tvm-ffi", ffi), ("onnxruntime", onnxruntime)) if v is None
        ]
        return Finding(name="versions", state="bad", text=f"{', '.join(missing)} not installed; pip install edgenas")
    seen = f"apache-tvm {tvm}, apache-tvm-ffi {ffi}, onnxruntime {onnxruntime}"
    if ffi in CRASHING_FFI:
        text = f"apache-tvm-ffi {ffi} crashes when tuning; pip install apache-tvm-ffi=={PINNED_FFI}"
        return Finding(name="versions", state="bad", text=text)
    if (tvm, ffi) != (PINNED_TVM, PINNED_FFI):
        wanted = f"pip install apache-tvm=={PINNED_TVM} apache-tvm-ffi=={PINNED_FFI}"
        return Finding(name="versions", state="warning", text=f"{seen}; written for others: {wanted}")
    return Finding(name="versions", state="good", text=seen)


def check_cache(folder: Path) -> Finding:
    """Whether the cache can be written to, and has room."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".doctor-{os.getpid()}"
        probe.write_text("")
        probe.unlink()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        text = f"{folder}: {error.strerror}; set NAS_CACHE_DIR to a folder that can be written to"
        return Finding(name="cache", state="bad", text=text)
    state, advice = ("good", "") if free >= _LEAST_FREE_BYTES else ("warning", "; make room")
    return Finding(name="cache", state=state, text=f"{folder}, {free / 1e9:.1f} GB free{advice}")  # type: ignore[arg-type]


def check_children() -> Iterator[Finding]:
    """For each runtime: whether a measuring child starts, how fast, and what it gives up."""
    from profilers.sandbox import Limits, run_child, thread_environment

    level = ""
    for name, place in RUNTIMES.items():
        starts = []
        for _ in range(3):
            job = {"started_s": time.monotonic(), "runtime": place}
            answer = run_child("profilers.probe:probe", job, limits=Limits(), environment=thread_environment(1))
            if isinstance(answer, ProfileFailure):
                text = f"a measuring child with {name} failed ({answer.kind}): {answer.reason}"
                yield Finding(name=f"child {name}", state="bad", text=text)
                break
            starts.append(float(answer["started_s"]))
            level = str(answer["sandbox"])
        else:
            start_s = sorted(starts)[1]
            late = start_s > _LONGEST_START_S
            text = f"starts in {start_s:.2f} s" + (
                f", more than {_LONGEST_START_S} s; free the machine" if late else ""
            )
            figures = {"start_s": start_s}
            yield Finding(name=f"child {name}", state="warning" if late else "good", text=text, figures=figures)
    if level:
        yield sandbox_finding(level)


def sandbox_finding(level: str) -> Finding:
    """What a child gives up; capitals are what it keeps and should not."""
    if "ROOT" in level:
        text = f"{level}; measure as an ordinary user, or let everyone read the cache folder"
        return Finding(name="sandbox", state="warning", text=text)
    if "NO SYSTEM CALL FILTER" in level:
        text = f"{level}; a kernel with seccomp would keep candidates from the network and from new processes"
        return Finding(name="sandbox", state="warning", text=text)
    return Finding(name="sandbox", state="good", text=level)


def check_lock() -> Finding:
    """Whether a second user of a device is kept out."""
    name = f"doctor-{os.getpid()}"
    try:
        with device_lock(name, timeout_s=0):
            try:
                with device_lock(name, timeout_s=0):
                    text = "two users held one device; put NAS_CACHE_DIR on a local disk"
                    return Finding(name="lock", state="bad", text=text)
            except DeviceBusyError:
                return Finding(name="lock", state="good", text="a second user of the device is kept waiting")
    except (OSError, ProfilerError) as error:
        return Finding(name="lock", state="bad", text=f"{error}; set NAS_CACHE_DIR to a folder on a local disk")
    finally:
        (state_folder() / "locks" / f"{name}.lock").unlink(missing_ok=True)


def check_databases(device: DeviceSpec, cache: Path, study: Path | None) -> Finding:
    """The tuning database of this device, and a study's."""
    from nas.compile.database import TuningDatabase

    texts = []
    try:
        version = _installed("apache-tvm") or "none"
        tuning = TuningDatabase.for_target(cache, target=device.target, tvm_version=version)
        path = tuning.path
        tuning.close()
        texts.append(f"tuning database {_sound(path)}")
        if study is not None:
            from nas.search.study import DATABASE_NAME

            texts.append(f"{study / DATABASE_NAME} {_sound(study / DATABASE_NAME)}")
    except (NasError, sqlite3.Error) as error:
        return Finding(name="databases", state="bad", text=f"{error}; restore it from a copy, or delete it")
    return Finding(name="databases", state="good", text=", ".join(texts))


def _sound(path: Path) -> str:
    if not path.is_file():
        raise NasError(f"{path}: not there")
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    finally:
        connection.close()
    if answer != "ok":
        raise NasError(f"{path}: damaged ({answer})")
    return "is sound"


def check_data() -> Finding:
    """Which data sets are here without being given a path."""
    from nas.training.data.fashion_mnist import DEBIAN_FOLDER

    if DEBIAN_FOLDER.is_dir():
        return Finding(name="data sets", state="good", text=f"digits (built in), fashion-mnist ({DEBIAN_FOLDER})")
    text = "digits (built in); for fashion-mnist: apt-get install dataset-fashion-mnist"
    return Finding(name="data sets", state="good", text=text)


def check_tuning() -> Finding:
    """Whether MetaSchedule builds what it needs to tune, in a process that may die of it."""
    from nas.compile.workers import WorkerFailure, WorkerPool, prepare_worker
    from nas.doctor.tuning_trial import build_tune_context

    pool: WorkerPool[Any] = WorkerPool(1, initializer=prepare_worker)
    try:
        started = time.monotonic()
        answer = pool.run(build_tune_context, timeout_s=_TUNING_TIMEOUT_S)
        duration_s = time.monotonic() - started
    finally:
        pool.close()
    if isinstance(answer, WorkerFailure):
        text = f"{answer.reason}; pip install apache-tvm=={PINNED_TVM} apache-tvm-ffi=={PINNED_FFI}"
        return Finding(name="tuning", state="bad", text=text)
    text = f"MetaSchedule proposes schedules ({duration_s:.0f} s with the imports)"
    return Finding(name="tuning", state="good", text=text, figures={"duration_s": duration_s})
