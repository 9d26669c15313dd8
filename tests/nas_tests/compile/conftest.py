from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nas.compile import compile_worker, kernel_tuner, workers
from nas.compile.compile_worker import CompilePlan, CompileRequest
from nas.compile.kernels import KernelTask
from nas.compile.workers import WorkerFailure, WorkerPool
from profilers.device import local_device
from search_spaces.candidate import Candidate
from tests.nas_tests.compile.candidates import SHALLOW

JOB_TIMEOUT_S = 120.0

InWorker = Callable[..., Any]
"""Runs a function of `jobs` (or of the package) in a worker and returns its value."""


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Locks and records of these tests, apart from the user's; workers inherit the environment."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NAS_CACHE_DIR", str(folder))
        patch.setenv("TVM_NUM_THREADS", "1")
        patch.setenv("OMP_NUM_THREADS", "1")
        yield folder


@pytest.fixture(scope="session")
def target() -> str:
    return local_device(1).target


@pytest.fixture(scope="session")
def make_request(target: str) -> Callable[..., CompileRequest]:
    def make(candidate: Candidate, seed: int = 0, weights: Path | None = None) -> CompileRequest:
        return CompileRequest(
            candidate_json=candidate.canonical_json(),
            phase="infer",
            weights=None if weights is None else str(weights),
            seed=seed,
            target=target,
        )

    return make


@pytest.fixture(scope="session")
def compile_pool() -> Iterator[WorkerPool[Any]]:
    """One worker with torch and TVM: they import each other's libraries, so never in this process."""
    with WorkerPool[Any](1, initializer=workers.prepare_worker) as pool:
        yield pool


@pytest.fixture(scope="session")
def tuning_pool() -> Iterator[WorkerPool[Any]]:
    """One worker with TVM and without torch."""
    with WorkerPool[Any](1, initializer=kernel_tuner.prepare_worker) as pool:
        yield pool


@pytest.fixture(scope="session")
def in_compile_worker(compile_pool: WorkerPool[Any]) -> InWorker:
    return _runner(compile_pool)


@pytest.fixture(scope="session")
def in_tuning_worker(tuning_pool: WorkerPool[Any]) -> InWorker:
    return _runner(tuning_pool)


def _runner(pool: WorkerPool[Any]) -> InWorker:
    def run(function: Callable[..., Any], *arguments: Any) -> Any:
        value = pool.run(function, *arguments, timeout_s=JOB_TIMEOUT_S)
        assert not isinstance(value, WorkerFailure), f"{value.reason}\n{value.traceback}"
        return value

    return run


@pytest.fixture(scope="session")
def shallow_kernels(in_compile_worker: InWorker, make_request: Callable[..., CompileRequest]) -> dict[str, KernelTask]:
    """The kernels of `SHALLOW` by TVM's names: `mean1`, `fused_conv2d1_add11` (queries, keys and values), ..."""
    plan: CompilePlan = in_compile_worker(compile_worker.plan, make_request(SHALLOW))
    return {task.name: task for task in plan.tasks}


@pytest.fixture
def package_root() -> Path:
    """What child processes of tests need on their import path."""
    return Path(__file__).parents[3]


@pytest.fixture
def child_environment(package_root: Path) -> dict[str, str]:
    paths = [str(package_root), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
