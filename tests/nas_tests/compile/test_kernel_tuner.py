from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from nas.compile import kernel_tuner
from nas.compile.kernel_tuner import JournalEntry, TuningJob, TuningResult, read_journal, summarise, tune_kernel
from nas.compile.kernels import KernelTask
from nas.compile.workers import WorkerFailure, WorkerPool
from profilers.lock import device_lock
from tests.nas_tests.compile import jobs
from tests.nas_tests.compile.conftest import InWorker


def make_job(
    task: KernelTask, target: str, journal: Path, *, num_trials: int = 2, trial_timeout_s: float = 60.0
) -> TuningJob:
    return TuningJob(
        key=task.key,
        name=task.name,
        workload_json=task.workload_json,
        target=target,
        num_trials=num_trials,
        trial_timeout_s=trial_timeout_s,
        device_id="local",
        journal=str(journal),
    )


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def job(shallow_kernels: dict[str, KernelTask], target: str, journal: Path) -> TuningJob:
    return make_job(shallow_kernels["mean1"], target, journal)


class TestJournal:
    JOB = TuningJob(
        key="k", name="n", workload_json="", target="", num_trials=9, trial_timeout_s=1.0, device_id="d", journal="j"
    )

    def test_a_missing_journal_is_an_empty_one(self, journal: Path) -> None:
        assert read_journal(journal) == ()

    def test_a_line_cut_short_is_left_out(self, journal: Path) -> None:
        lines = ["[0, null, null]", '[0, 0.5, "trace"]', "[1, null, null]"]
        whole = "\n".join(lines) + "\n"
        cuts = {cut: len(read(journal, whole[:cut])) for cut in range(len(whole) + 1)}
        assert list(cuts.values()) == sorted(cuts.values()), "more text, more entries"
        assert set(cuts.values()) == {0, 1, 2, 3}
        # An entry counts once its last character is there, and not before.
        assert cuts[len(lines[0]) - 1] == 0
        assert cuts[len(lines[0])] == 1

    def test_what_follows_a_torn_line_is_read(self, journal: Path) -> None:
        entries = read(journal, '[0, null, null]\n[0, 0.5, "tr' + "\n[1, null, null]\n")
        assert [entry.trial for entry in entries] == [0, 1]

    def test_the_tuner_loses_only_the_torn_line(self, journal: Path) -> None:
        journal.write_text('[0, null, null]\n[0, 0.5, "tr')
        with journal.open("a") as log:
            kernel_tuner._write(log, JournalEntry(1, None, None))
        assert read_journal(journal) == (JournalEntry(0, None, None), JournalEntry(1, None, None))

    @pytest.mark.parametrize("line", ["7", "null", "[1]", "[1, 2, 3, 4]", "{}"])
    def test_json_that_is_no_entry_is_left_out(self, journal: Path, line: str) -> None:
        assert read(journal, f'{line}\n[0, 0.5, "trace"]\n') == (JournalEntry(0, 0.5, "trace"),)

    def test_the_fastest_trial_wins_and_the_first_of_equals(self) -> None:
        timed = [(0, 3.0), (1, 1.0), (2, 2.0), (3, 1.0)]
        entries = [JournalEntry(trial, None, None) for trial, _ in timed]
        entries += [JournalEntry(trial, latency_s, f"trace {trial}") for trial, latency_s in timed]
        for order in (entries, entries[::-1]):
            result = summarise(self.JOB, tuple(order))
            assert (result.latency_s, result.trace_json) == (1.0, "trace 1")
            assert (result.num_trials, result.num_failed) == (4, 0)

    def test_a_trial_that_began_and_never_ended_has_failed(self) -> None:
        entries = (JournalEntry(0, None, None), JournalEntry(1, None, None), JournalEntry(1, 0.5, "trace"))
        result = summarise(self.JOB, entries)
        assert (result.num_trials, result.num_failed, result.trace_json) == (2, 1, "trace")

    def test_without_a_timed_trial_there_is_no_schedule(self) -> None:
        assert summarise(self.JOB, (JournalEntry(0, None, None),)) == TuningResult(
            key="k", name="n", trace_json=None, latency_s=None, num_trials=1, num_failed=1
        )
        assert summarise(self.JOB, ()).num_trials == 0


def read(journal: Path, text: str) -> tuple[JournalEntry, ...]:
    journal.write_text(text)
    return read_journal(journal)


def test_tuning_workers_have_no_torch(in_tuning_worker: InWorker, job: TuningJob) -> None:
    in_tuning_worker(tune_kernel, job)
    assert not in_tuning_worker(jobs.has_torch)


def test_each_trial_is_in_the_journal_before_and_after(in_tuning_worker: InWorker, job: TuningJob) -> None:
    result = in_tuning_worker(tune_kernel, job)
    entries = read_journal(Path(job.journal))
    assert [(entry.trial, entry.latency_s is None) for entry in entries] == [
        (0, True), (0, False), (1, True), (1, False),
    ]  # fmt: skip
    assert result == summarise(job, entries)
    assert 0 < result.latency_s == min(entry.latency_s for entry in entries if entry.latency_s is not None)


def test_a_trial_that_killed_its_worker_is_not_tried_again(in_tuning_worker: InWorker, job: TuningJob) -> None:
    Path(job.journal).write_text("[0, null, null]\n")
    result = in_tuning_worker(tune_kernel, job)
    assert (result.num_trials, result.num_failed) == (2, 1)
    assert [entry.trial for entry in read_journal(Path(job.journal))] == [0, 1, 1]


def test_a_finished_job_tries_nothing_again(in_tuning_worker: InWorker, job: TuningJob) -> None:
    first = in_tuning_worker(tune_kernel, job)
    content = Path(job.journal).read_text()
    assert in_tuning_worker(tune_kernel, job) == first
    assert Path(job.journal).read_text() == content


@pytest.mark.parametrize("reason", ["thread axis", "pipeline"])
def test_a_schedule_that_does_not_build_has_no_time(in_tuning_worker: InWorker, job: TuningJob, reason: str) -> None:
    worker = in_tuning_worker(jobs.process_id)
    assert in_tuning_worker(jobs.time_unbuildable, reason, job) is None
    assert in_tuning_worker(jobs.process_id) == worker


def test_waiting_for_the_device_is_no_trial_out_of_time(
    tuning_pool: WorkerPool[Any], shallow_kernels: dict[str, KernelTask], target: str, journal: Path
) -> None:
    limit_s = 2.0
    with device_lock("local"):  # as who measures a network holds it
        pending = tuning_pool.submit(
            tune_kernel,
            make_job(shallow_kernels["mean1"], target, journal, num_trials=1, trial_timeout_s=limit_s),
            timeout_s=120.0,
        )
        while not read_journal(journal):
            time.sleep(0.01)
        time.sleep(1.25 * limit_s)
        assert not pending.is_done(), "timed while another had the device"
    result = pending.result()
    assert not isinstance(result, WorkerFailure)
    assert (result.num_trials, result.num_failed) == (1, 0)


def test_a_workload_nobody_can_read_is_a_bug_with_its_traceback(
    tuning_pool: WorkerPool[Any], target: str, journal: Path
) -> None:
    task = KernelTask(
        key="k", name="n", num_uses=1, num_operations=1.0, is_heavy=True, workload_json="not a module"
    )  # fmt: skip
    failure = tuning_pool.run(tune_kernel, make_job(task, target, journal), timeout_s=60.0)
    assert isinstance(failure, WorkerFailure)
    assert failure.kind == "raised"
    assert "load_json" in failure.traceback
    assert not journal.exists() or json.dumps(None) not in journal.read_text()
