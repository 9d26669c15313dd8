"""Replays of searches on a small table: what is counted, what a method is told, and what the figures are made from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nas.bench.table_search
from nas.bench.search_methods import METHODS, Seen
from nas.bench.search_plot import curves_of
from nas.bench.table_problem import TableProblem, TableSource, make_problem
from nas.bench.table_search import Replay, bench_search, replay_method
from nas.bench.tables import TableError, load_table
from tests.nas_tests.bench.small_table import small_problem, write_small_table


@pytest.fixture
def problem(tmp_path: Path) -> TableProblem:
    return small_problem(tmp_path)


def replayed(problem: TableProblem, method: str, **settings: float) -> Replay:
    options = {"seed": 0, "num_evaluations": 14, "noise": 0.0, "num_measured": 10, **settings}
    return replay_method(problem, method, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_searches_and_the_same_seed_searches_the_same(problem: TableProblem, method: str) -> None:
    one, again = (replayed(problem, method) for _ in range(2))
    assert (one.covered, one.regret) == (again.covered, again.regret)
    assert len(one.covered) == 14
    assert np.diff(one.covered).min() > -1e-9, "what was found stays found"
    assert np.diff(one.regret).max() <= 0
    assert 0 < one.covered[-1] <= 1 + 1e-9


def test_another_seed_searches_elsewhere(problem: TableProblem) -> None:
    assert replayed(problem, "random").covered != replayed(problem, "random", seed=1).covered


def test_a_search_of_the_whole_table_has_found_the_whole_front(problem: TableProblem) -> None:
    done = replayed(problem, "ours", num_evaluations=1000)
    assert len(done.covered) == len(problem.choices)
    assert (done.covered[-1], done.regret[-1]) == (pytest.approx(1.0), 0.0)


class Scripted:
    """Asks for given rows, and keeps what it is told."""

    def __init__(self, rows: list[int]) -> None:
        self.rows, self.told = iter(rows), list[Seen]()

    def ask(self) -> int:
        return next(self.rows)

    def tell(self, seen: Seen) -> None:
        self.told.append(seen)


def test_a_repeated_proposal_is_told_again_and_not_counted(
    problem: TableProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = Scripted([5, 5, 5, 9])
    monkeypatch.setitem(METHODS, "scripted", lambda problem, seed, num_measured: method)  # type: ignore[arg-type]
    done = replayed(problem, "scripted", num_evaluations=2, noise=0.1)
    assert [seen.row for seen in method.told] == [5, 5, 5, 9]
    assert len({seen.quality for seen in method.told[:3]}) == 1, "trained once"
    assert done.covered == (problem.covered([5]), problem.covered([5, 9]))


def test_a_method_that_is_stuck_ends(problem: TableProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nas.bench.table_search, "MAX_REPEATS", 3)
    method = Scripted([5] * 100)
    monkeypatch.setitem(METHODS, "stuck", lambda problem, seed, num_measured: method)  # type: ignore[arg-type]
    assert len(replayed(problem, "stuck", num_evaluations=4).covered) == 4


def test_noise_is_seen_by_the_method_and_not_by_the_figures(
    problem: TableProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = list(range(20))
    quiet, noisy = Scripted(rows), Scripted(rows)
    for name, method in (("quiet", quiet), ("noisy", noisy)):
        monkeypatch.setitem(METHODS, name, lambda problem, seed, num_measured, method=method: method)  # type: ignore[arg-type]
    without, with_noise = replayed(problem, "quiet"), replayed(problem, "noisy", noise=0.05)
    assert with_noise.covered == without.covered
    assert [seen.quality for seen in quiet.told] == problem.qualities[:14].tolist()
    deviation = np.std([seen.quality - problem.qualities[seen.row] for seen in noisy.told])
    assert 0.02 < deviation < 0.1


def test_figures_are_means_over_seeds_and_rows_are_every_evaluation(problem: TableProblem) -> None:
    told: list[str] = []
    result, replays = bench_search(
        problem, ["random", "evolution"], num_seeds=3, num_evaluations=30, noise=0.0, num_measured=10, is_quick=True,
        report=told.append,
    )  # fmt: skip
    assert len(result.rows) == 2 * 3 * 30
    hypervolumes = result.figures["hv25"]
    assert isinstance(hypervolumes, dict)
    assert hypervolumes["random"] == pytest.approx(
        np.mean([each.covered[24] for each in replays if each.method == "random"])
    )
    assert "hv50" not in result.figures, "nothing was evaluated fifty times"
    assert [line.split(":")[0] for line in told] == ["random", "evolution"]


def test_a_curve_is_the_mean_and_its_standard_error() -> None:
    replays = [
        Replay(method="m", seed=seed, covered=covered, regret=(0.0,) * len(covered), propose_s=0.0)
        for seed, covered in enumerate([(0.2, 0.4, 0.5), (0.4, 0.4)])
    ]
    (curve,) = curves_of(replays)
    assert curve.mean.tolist() == pytest.approx([0.3, 0.4])
    assert curve.error.tolist() == pytest.approx([0.1, 0.0])


def test_a_row_is_found_by_its_choices_and_of_a_gap_the_nearest(problem: TableProblem) -> None:
    assert [problem.row_of(each) for each in problem.choices] == list(range(60))
    gap = replace(problem, _rows={}, choices=problem.choices[1:])
    assert gap.choices[gap.row_of(problem.choices[0])] in problem.choices[1:3]


def test_the_source_gives_the_whole_table_and_describes_rows(problem: TableProblem) -> None:
    source = TableSource(problem)
    assert len(source.pool((), np.random.default_rng(0)).keys) == 60
    chosen = [problem.choices[7], problem.choices[3]]
    assert list(source.describe(chosen).keys) == list(source.keys(chosen)) == ["7", "3"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quality": "bleu"}, "no quality 'bleu'; there are: test_acc"),
        ({"device": "fpga"}, "no device 'fpga'; there are: phone"),
        ({"budget_ms": 0.1}, "no architecture is within 0.1 ms on phone; the fastest takes"),
    ],
)
def test_a_problem_that_cannot_be_is_one_line(tmp_path: Path, settings: dict[str, object], message: str) -> None:
    table = load_table(write_small_table(tmp_path), architecture=["width", "depth", "kind"])
    with pytest.raises(TableError, match=message):
        make_problem(table, **{"quality": "test_acc", "device": "phone", **settings})  # type: ignore[arg-type]
