from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nas.bench.samplers import BenchSamplersError, Comparison, bench_samplers, compared
from nas.config import StudyConfig, load_config
from nas.ledger import Ledger
from nas.search.progress import Silent, Watcher
from nas.search.testing import FakeWorkbench, made_up_score, plausible
from nas.trial import CandidateCost, Outcome, TrialRecord
from profilers.measurement import LatencyEstimate
from search_spaces.conv_attention import ConvAttentionSpace
from search_spaces.space import replay
from tests.nas_tests.search.small_studies import LARGE

REFERENCE = replay(LARGE, LARGE.references()["reference"])


def trial(number: int, num_right: int, latency_ms: float) -> TrialRecord:
    estimate = LatencyEstimate(latency_ms=latency_ms, lower_ms=latency_ms, upper_ms=latency_ms, source="measured")
    cost = CandidateCost(
        latencies=(("infer", estimate),), num_params=1, num_macs=1, model_bytes=1, peak_memory_bytes=1, runtime="tvm",
        tuned_coverage=1.0, parity_max_abs=0.0,
    )  # fmt: skip
    return TrialRecord(
        trial=number, candidate=REFERENCE, outcome=Outcome.SCORED, cost=cost, score=made_up_score(num_right, "val")
    )


def test_a_study_that_found_all_there_is_has_the_whole_hypervolume() -> None:
    everything = [trial(0, 180, 4.0), trial(1, 270, 2.0), trial(2, 360, 3.0)]
    result = compared(
        {("budget", 0): everything, ("budget", 1): everything, ("tpe", 0): everything[:2], ("tpe", 1): everything[:1]},
        "infer", 4.0, "maximize",
    )  # fmt: skip
    hypervolume = result.figures["hypervolume"]
    # From 0.5 and 4 ms: 0.25 over 2 to 3 ms and 0.5 over 3 to 4; TPE found 0.25 over 2 ms, and nothing.
    assert hypervolume == {"budget": pytest.approx(1.0), "tpe": pytest.approx(0.5 / 0.75 / 2)}
    assert result.figures["ours_minus_tpe"] == pytest.approx(1 - 0.5 / 0.75 / 2)


def test_repeats_count_once_and_what_was_not_scored_not_at_all() -> None:
    scored = [trial(0, 180, 4.0), trial(1, 360, 2.0)]
    repeated = replace(trial(2, 360, 1.0), duplicate_of=1)
    result = compared({("budget", 0): scored, ("gp", 0): [*scored, repeated]}, "infer", 4.0, "maximize")
    assert result.figures["hypervolume"] == {"budget": 1.0, "gp": 1.0}
    assert result.figures["hypervolume_half_width95"] == {"budget": None, "gp": None}


def test_nothing_scored_is_an_error_and_no_zero() -> None:
    with pytest.raises(BenchSamplersError, match="no study scored a network"):
        compared({("budget", 0): [], ("tpe", 0): []}, "infer", 4.0, "maximize")


@pytest.mark.parametrize("samplers", [("budget",), ("tpe", "gp"), ("budget", "budget")])
def test_ours_and_another_are_needed(samplers: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(BenchSamplersError, match="budget and at least one other"):
        Comparison(config=StudyConfig(), out=tmp_path, samplers=samplers, num_seeds=1, minutes=1.0)


def test_studies_take_their_time_share_a_budget_and_are_not_run_again(tmp_path: Path) -> None:
    made: list[FakeWorkbench] = []

    def make(
        config: StudyConfig, folder: Path, ledger: Ledger, phases: tuple[str, ...], watcher: Watcher
    ) -> FakeWorkbench:
        made.append(FakeWorkbench(folder=folder, ledger=ledger, script=plausible, phases=phases))
        return made[-1]

    comparison = Comparison(
        config=load_config(overrides={"search.screen": False}), out=tmp_path, samplers=("budget", "random"),
        num_seeds=2, minutes=0.01,
    )  # fmt: skip
    result = bench_samplers(comparison, Silent(), is_quick=True, make_bench=make)  # type: ignore[arg-type]
    assert [(row["sampler"], row["seed"]) for row in result.rows] == [
        ("budget", 0), ("random", 0), ("random", 1), ("budget", 1),
    ]  # fmt: skip
    assert all(int(row["trials"] or 0) >= 1 for row in result.rows)
    assert len({bench.budgets for bench in made[1:]}) == 1 and made[1].budgets
    assert len(made) == 5 and all(bench.is_closed for bench in made)
    again = bench_samplers(comparison, Silent(), is_quick=True, make_bench=make)  # type: ignore[arg-type]
    assert again.rows == result.rows
    assert len(made) == 6, "only the reference's folder is opened again, and its budget is in its ledger"


def test_a_study_that_was_broken_off_is_begun_anew(tmp_path: Path) -> None:
    def make(
        config: StudyConfig, folder: Path, ledger: Ledger, phases: tuple[str, ...], watcher: Watcher
    ) -> FakeWorkbench:
        def stop(stage: str, candidate_id: str) -> None:
            if config.search.sampler == "random" and is_broken:
                raise KeyboardInterrupt

        return FakeWorkbench(folder=folder, ledger=ledger, script=plausible, phases=phases, on_call=stop)

    comparison = Comparison(
        config=load_config(overrides={"search.screen": False, "search.budgets": ["12ms"]}), out=tmp_path,
        samplers=("budget", "random"), num_seeds=1, minutes=0.01,
    )  # fmt: skip
    is_broken = True
    with pytest.raises(KeyboardInterrupt):
        bench_samplers(comparison, Silent(), is_quick=True, make_bench=make)  # type: ignore[arg-type]
    is_broken = False
    bench_samplers(comparison, Silent(), is_quick=True, make_bench=make)  # type: ignore[arg-type]
    assert len(list(tmp_path.glob("random-0.before-*"))) == 1
    assert not list(tmp_path.glob("budget-0.before-*"))


def test_the_space_of_these_tests_is_the_default_one() -> None:
    assert isinstance(LARGE, ConvAttentionSpace) and StudyConfig().search.space == LARGE.name
