from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nas.compile import kernel_tuner
from nas.compile.database import KernelRecord, TuningDatabase
from nas.compile.kernel_tuner import MIN_TRIALS_FOR_DRAWS
from nas.compile.kernels import KernelTask
from nas.compile.tuning import LIGHT_TRIALS, MAX_CRASHES, KernelTuner
from nas.compile.workers import WorkerPool
from tests.nas_tests.compile import jobs
from tests.nas_tests.compile.conftest import InWorker

MakeTuner = Callable[..., KernelTuner]


@pytest.fixture
def database(tmp_path: Path, target: str) -> Iterator[TuningDatabase]:
    database = TuningDatabase.for_target(tmp_path, target=target, tvm_version="test")
    yield database
    database.close()


@pytest.fixture
def make_tuner(target: str, tuning_pool: WorkerPool[Any], monkeypatch: pytest.MonkeyPatch) -> MakeTuner:
    """Tuners that share a worker: each worker takes seconds to import TVM."""

    def make(num_trials: int = 2, trial_timeout_s: float = 60.0, pool: WorkerPool[Any] = tuning_pool) -> KernelTuner:
        monkeypatch.setenv("TVM_NUM_THREADS", "1")  # put back what the tuner sets
        tuner = KernelTuner(
            target=target,
            device_id="local",
            num_trials=num_trials,
            num_threads=1,
            num_workers=1,
            trial_timeout_s=trial_timeout_s,
        )
        tuner.close()
        tuner._pool = pool
        return tuner

    return make


@pytest.fixture
def mean(shallow_kernels: dict[str, KernelTask]) -> KernelTask:
    return shallow_kernels["mean1"]


def test_tuning_gives_every_kernel_a_record_and_finds_it_the_next_time(
    make_tuner: MakeTuner, database: TuningDatabase, shallow_kernels: dict[str, KernelTask]
) -> None:
    tasks = [shallow_kernels["mean1"], shallow_kernels["fused_conv2d1_add11"]]
    seen: list[tuple[int, int]] = []
    tuner = make_tuner()
    report = tuner.tune(tasks, database, lambda done, total: seen.append((done, total)))
    assert seen == [(0, 2), (1, 2), (2, 2)]
    assert (report.num_kernels, report.num_known, report.num_trials, report.failed_kernels) == (2, 0, 4, ())
    records = database.get(task.key for task in tasks)
    assert {record.name for record in records.values()} == {"mean1", "fused_conv2d1_add11"}
    assert all(record.latency_s > 0 and record.num_trials == 2 for record in records.values())

    seen.clear()
    again = tuner.tune(tasks, database, lambda done, total: seen.append((done, total)))
    assert (again.num_known, again.num_trials, again.failed_kernels, seen) == (2, 0, (), [])
    assert database.get(task.key for task in tasks) == records


def test_a_light_kernel_gets_a_few_trials_only(
    make_tuner: MakeTuner, database: TuningDatabase, mean: KernelTask
) -> None:
    assert not mean.is_heavy
    report = make_tuner(num_trials=LIGHT_TRIALS + 2).tune([mean], database)
    assert report.num_trials == LIGHT_TRIALS
    heavy = dataclasses.replace(mean, key="another", is_heavy=True)
    assert make_tuner(num_trials=MIN_TRIALS_FOR_DRAWS).tune([heavy], database).num_trials == MIN_TRIALS_FOR_DRAWS


def test_a_kernel_with_fewer_schedules_than_trials_is_not_tuned_again(
    make_tuner: MakeTuner, database: TuningDatabase, mean: KernelTask
) -> None:
    heavy = dataclasses.replace(mean, is_heavy=True)
    tuner = make_tuner(num_trials=MIN_TRIALS_FOR_DRAWS - 1)
    assert 0 < tuner.tune([heavy], database).num_trials < MIN_TRIALS_FOR_DRAWS - 1
    assert tuner.missing([heavy], database, refines=True) == []


def test_without_trials_nothing_is_tuned_and_no_worker_starts(
    make_tuner: MakeTuner, database: TuningDatabase, mean: KernelTask
) -> None:
    database.put(KernelRecord(key="known", name="n", trace_json="[]", latency_s=1.0, num_trials=1, num_failed=0))
    known = dataclasses.replace(mean, key="known")
    with WorkerPool[Any](1, initializer=kernel_tuner.prepare_worker) as pool:
        pool.submit = None  # type: ignore[method-assign, assignment]
        report = make_tuner(num_trials=0, pool=pool).tune([mean, known], database)
    assert (report.num_kernels, report.num_known, report.num_trials) == (2, 1, 0)
    assert report.failed_kernels == ("mean1",)


def test_a_trial_out_of_time_takes_only_its_worker_down(
    make_tuner: MakeTuner, database: TuningDatabase, mean: KernelTask, in_tuning_worker: InWorker
) -> None:
    worker = in_tuning_worker(jobs.process_id)
    report = make_tuner(num_trials=1, trial_timeout_s=0.001).tune([mean], database)
    assert (report.num_trials, report.num_failed, report.failed_kernels) == (1, 1, ("mean1",))
    assert len(database) == 0
    assert in_tuning_worker(jobs.process_id) != worker


def test_a_kernel_that_crashes_costs_no_other_its_record(
    make_tuner: MakeTuner, database: TuningDatabase, mean: KernelTask, in_tuning_worker: InWorker
) -> None:
    workload = in_tuning_worker(jobs.workload_of_missing_function)
    crashing = dataclasses.replace(mean, key="crashing", name="crashing", workload_json=workload)
    report = make_tuner(num_trials=1).tune([crashing, mean], database)
    assert (report.num_trials, report.num_failed, report.failed_kernels) == (2, 1, ("crashing",))
    assert list(database.get([crashing.key, mean.key])) == [mean.key]


def test_a_kernel_that_kills_every_worker_is_given_up(
    make_tuner: MakeTuner, database: TuningDatabase, mean: KernelTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_tuner, "tune_kernel", jobs.begin_trial_and_die)
    with WorkerPool[Any](1, initializer=kernel_tuner.prepare_worker) as pool:
        report = make_tuner(num_trials=100, pool=pool).tune([dataclasses.replace(mean, is_heavy=True)], database)
    assert (report.num_trials, report.num_failed) == (MAX_CRASHES, MAX_CRASHES)
    assert report.failed_kernels == ("mean1",)
    assert len(database) == 0


def test_a_job_that_raises_is_a_bug_that_shows_its_traceback(
    make_tuner: MakeTuner, database: TuningDatabase, mean: KernelTask
) -> None:
    broken = dataclasses.replace(mean, workload_json="not a module")
    with pytest.raises(RuntimeError, match=r"^tuning mean1: ") as caught:
        make_tuner().tune([broken], database)
    assert "Traceback" in str(caught.value)
    assert "tune_kernel" in str(caught.value)
    assert len(database) == 0


def test_a_kernel_whose_schedules_all_failed_is_tried_again_only_when_asked(
    make_tuner: MakeTuner, database: TuningDatabase, mean: KernelTask
) -> None:
    heavy = dataclasses.replace(mean, is_heavy=True)
    assert make_tuner(num_trials=2, trial_timeout_s=0.001).tune([heavy], database).num_failed == 2
    tuner = make_tuner(num_trials=2)
    again = tuner.tune([heavy], database)
    assert (again.num_trials, again.failed_kernels) == (0, ("mean1",))
    assert tuner.missing([heavy], database) == []
    assert make_tuner(num_trials=3).missing([heavy], database) == [heavy]
    assert database.forget_failures() == 1
    assert tuner.tune([heavy], database).failed_kernels == ()


def test_refining_tunes_what_had_fewer_trials_and_nothing_else(
    make_tuner: MakeTuner, database: TuningDatabase, mean: KernelTask
) -> None:
    for key, num_trials in (("few", 2), ("many", 9)):
        database.put(
            KernelRecord(key=key, name="n", trace_json="[]", latency_s=1.0, num_trials=num_trials, num_failed=0)
        )
    few, many, light = (dataclasses.replace(mean, key=key, is_heavy=key != "light") for key in ("few", "many", "light"))
    database.put(
        KernelRecord(key="light", name="n", trace_json="[]", latency_s=1.0, num_trials=LIGHT_TRIALS, num_failed=0)
    )
    tuner = make_tuner(num_trials=LIGHT_TRIALS + 1)
    assert tuner.missing([few, many, light], database) == []
    assert tuner.missing([few, many, light], database, refines=True) == [few]


def test_tuners_for_one_and_two_threads_in_one_process_each_start_workers_of_their_own_kind(target: str) -> None:
    tuners = [
        KernelTuner(
            target=target, device_id="local", num_trials=1, num_threads=count, num_workers=1, trial_timeout_s=60.0
        )
        for count in (1, 2)
    ]
    try:
        seen = [tuner._pool.run(os.getenv, "TVM_NUM_THREADS", timeout_s=60.0) for tuner in tuners]  # type: ignore[arg-type]
    finally:
        for tuner in tuners:
            tuner.close()
    assert seen == ["1", "2"]
