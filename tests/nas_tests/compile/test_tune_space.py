from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nas.compile import tune_space as module
from nas.compile.database import KernelRecord, TuningDatabase
from nas.compile.kernels import KernelTask
from nas.compile.space_kernels import SpaceKernel
from nas.compile.tune_space import TunedKernel, TuneSpaceError, Watch, speedup, tune_space
from nas.compile.tuning import TuningReport
from nas.compile.tvm import CompileFailure, CompileLimits, TvmCompiler
from profilers.device import local_device
from search_spaces.candidate import BlockSpec, Value
from search_spaces.conv_attention import ConvAttentionSpace, StageOptions
from search_spaces.layers import layers_of
from tests.nas_tests.search.small_studies import DECODE, PHASED, PREFILL, SHORT

IMAGE, HEAD = BlockSpec.of("image", channels=1, height=8, width=8), BlockSpec.of("classifier", classes=10)


class OneStage(ConvAttentionSpace):
    """Few networks with few kernels, so that all of them can be tuned in a test."""

    stages = (StageOptions(widths=(32,), depths=(1,)),)

    def kinds(self, stage: int) -> tuple[str, ...]:
        return ("attention",)

    def references(self) -> dict[str, dict[str, Value]]:
        return {"only": {"stage1.width": 32, "stage1.depth": 1, "stage1.layer0.kind": "attention"}}


class CountingCompiler:
    """Plans a kernel for each layer, and "tunes" in no time: what `tune_space` needs of a `TvmCompiler`."""

    def __init__(self, database: TuningDatabase, num_trials: int = 8) -> None:
        self.database = database
        self.num_trials = num_trials
        self.batches: list[list[str]] = []
        self.interrupts_at: int | None = None
        self.failing: set[str] = set()

    def plan(self, candidate: Any, phase: str) -> tuple[KernelTask, ...]:
        return tuple(
            KernelTask(
                key=f"{abs(hash(layer.signature)):024x}"[:24], name="_".join(map(str, layer.signature)), num_uses=1,
                num_operations=2.1 * layer.num_macs, is_heavy=layer.num_macs > 1000, workload_json="",
            )
            for layer in layers_of(candidate)
        )  # fmt: skip

    def missing(self, tasks: Sequence[KernelTask]) -> list[KernelTask]:
        known, failed = (self.database.get(t.key for t in tasks), self.database.failures(t.key for t in tasks))
        return [t for t in tasks if t.key not in failed and (t.key not in known or known[t.key].num_trials < 8)]

    def tune(self, tasks: Sequence[KernelTask]) -> TuningReport:
        if self.interrupts_at == len(self.batches):
            raise KeyboardInterrupt
        self.batches.append([task.key for task in tasks])
        for task in tasks:
            if task.name in self.failing:
                self.database.put_failure(task.key, task.name, self.num_trials)
            else:
                self.database.put(record(task.key, 1.0, self.num_trials))
        return TuningReport(
            num_kernels=len(tasks), num_known=0, num_trials=8 * len(tasks), num_failed=0, failed_kernels=(),
            duration_s=1.0,
        )  # fmt: skip


def record(key: str, latency_s: float, num_trials: int = 8) -> KernelRecord:
    return KernelRecord(key=key, name="n", trace_json="[]", latency_s=latency_s, num_trials=num_trials, num_failed=0)


class Seen(Watch):
    def __init__(self) -> None:
        self.lines: list[tuple[str, int, int]] = []

    def lowered(self, done: int, total: int) -> None:
        self.lines.append(("lowered", done, total))

    def tuned(self, kernel: TunedKernel, done: int, total: int) -> None:
        self.lines.append((kernel.kernel.task.key, done, total))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[TuningDatabase]:
    database = TuningDatabase(tmp_path / "tuning.db", target="llvm", tvm_version="1")
    yield database
    database.close()


@pytest.fixture
def compiler(database: TuningDatabase) -> Any:
    return CountingCompiler(database)


def space() -> ConvAttentionSpace:
    return ConvAttentionSpace(IMAGE, HEAD)


def test_every_kernel_is_tuned_once_the_most_work_first(compiler: Any) -> None:
    seen = Seen()
    result = tune_space(space(), compiler, watch=seen)
    keys = [key for batch in compiler.batches for key in batch]
    assert len(keys) == len(set(keys)) == len(result.kernels) == len(result.tuned)
    heavy = [each.work_share for each in result.kernels if each.task.is_heavy]
    assert heavy == sorted(heavy, reverse=True)
    assert keys == [each.task.key for each in result.kernels]
    assert (result.work_before, result.work_after, result.num_left, result.stopped_because) == (0.0, 1.0, 0, None)
    assert [line[0] for line in seen.lines if line[0] != "lowered"] == keys


def test_a_second_run_has_nothing_to_do(compiler: Any) -> None:
    tune_space(space(), compiler)
    compiler.batches.clear()
    again = tune_space(space(), compiler)
    assert compiler.batches == []
    assert (again.num_skipped, again.work_before, again.num_trials) == (len(again.kernels), 1.0, 0)


def test_it_stops_when_the_time_is_up_and_goes_on_later(compiler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KERNELS_AT_ONCE", 3)
    times = iter([0.0, 10.0, 50.0, 70.0, 70.0])
    first = tune_space(space(), compiler, minutes=1.0, clock=lambda: next(times))
    assert len(first.tuned) == 6
    assert (first.stopped_because, first.num_left) == ("the time is up", len(first.kernels) - 6)
    assert 0.0 < first.work_after < 1.0
    second = tune_space(space(), compiler)
    assert (second.num_skipped, second.stopped_because) == (6, None)
    assert second.work_before == pytest.approx(first.work_after)
    keys = [key for batch in compiler.batches for key in batch]
    assert len(keys) == len(set(keys)) == len(first.kernels)


def test_an_interrupt_keeps_what_was_done(compiler: Any) -> None:
    compiler.interrupts_at = 2
    result = tune_space(space(), compiler)
    assert result.stopped_because == "interrupted"
    assert len(result.tuned) == len(compiler.database) == 2 * module.KERNELS_AT_ONCE


def test_a_kernel_without_a_usable_schedule_is_reported_and_skipped_the_next_time(compiler: Any) -> None:
    name = compiler.plan(next(iter(candidates())), "infer")[0].name
    compiler.failing = {name}
    first = tune_space(space(), compiler)
    assert [each.kernel.task.name for each in first.tuned if each.after_s is None] == [name]
    assert first.work_after < 1.0
    assert tune_space(space(), compiler).tuned == []


def candidates() -> Iterator[Any]:
    from search_spaces.space import replay

    return (replay(space(), choices) for choices in space().references().values())


def test_a_candidate_that_does_not_lower_is_named(compiler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = CompileFailure(reason="no memory", tune_s=0.0, compile_s=0.0)
    monkeypatch.setattr(compiler, "plan", lambda candidate, phase: failure)
    with pytest.raises(TuneSpaceError, match=r"candidate [0-9a-f]{12}, infer: no memory"):
        tune_space(space(), compiler)


def test_the_speedup_weighs_kernels_by_how_often_they_run() -> None:
    def tuned(share: float, operations: float, before_s: float | None, after_s: float | None) -> TunedKernel:
        task = KernelTask(key="k", name="n", num_uses=1, num_operations=operations, is_heavy=True, workload_json="")
        return TunedKernel(kernel=SpaceKernel(task=task, work_share=share), before_s=before_s, after_s=after_s)

    assert speedup([tuned(0.5, 10.0, 4.0, 2.0), tuned(0.25, 10.0, 2.0, 2.0)]) == pytest.approx(2.5 / 1.5)
    assert speedup([tuned(0.5, 10.0, None, 2.0), tuned(0.5, 10.0, 1.0, None)]) is None


@pytest.mark.slow
def test_a_real_space_is_tuned_on_this_machine_and_its_networks_then_compile_without_tuning(tmp_path: Path) -> None:
    device = local_device(1)
    compiler = TvmCompiler(device, CompileLimits(tuning_trials=1), tmp_path)
    try:
        result = tune_space(OneStage(IMAGE, HEAD), compiler)
        assert result.num_left == 0 and result.work_after >= 0.95
        compiled = compiler.compile(next(iter(survey_cover())), "infer")
        assert not isinstance(compiled, CompileFailure)
        assert compiled.artifact.tuned_coverage is not None and compiled.artifact.tuned_coverage >= 0.95
        assert compiled.num_known == compiled.num_kernels
    finally:
        compiler.close()


def survey_cover() -> Sequence[Any]:
    from nas.compile.space_kernels import survey

    return survey(OneStage(IMAGE, HEAD)).cover


def test_one_phase_is_tuned_alone_and_all_of_them_without_a_name(
    compiler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[str] = []
    plan = compiler.plan
    monkeypatch.setattr(compiler, "plan", lambda candidate, phase: planned.append(phase) or plan(candidate, phase))
    tune_space(PHASED, compiler, phases=(PREFILL,))
    assert set(planned) == {PREFILL}
    tune_space(PHASED, compiler)
    assert set(planned) == {DECODE, PREFILL, SHORT}
