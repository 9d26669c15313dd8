"""A fast path is put through its gate once, before the first trial, and a refused one is not trained by."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn

from nas.bench.tiny_studies import RECIPE, TinyBench, TinyStudy, run_tiny
from nas.gates.result import GateResult
from nas.ledger import Ledger
from nas.search.gate_seconds import gate_seconds
from nas.search.path_run import path_result, settle_path
from nas.search.progress import Silent
from nas.search.testing import FakeWorkbench
from nas.training import paths
from nas.training.paths import TrainingPath
from nas.training.recipe import Recipe
from nas.training.result import TrainFailure
from search_spaces.candidate import Candidate
from tests.nas_tests.search.small_studies import SMALL

ASKED = Recipe(fast_path="bfloat16")
NEW = {"training.fast_path": "bfloat16"}


class Notes(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


class PathBench(FakeWorkbench):
    """Says of a fast path what it is told to."""

    answer: GateResult | TrainFailure = GateResult(passed=True, reason="bfloat16: equal", figures=(("seeds", 3),))

    def compare_path(self, name: str, candidate: Candidate) -> GateResult | TrainFailure:
        self.calls.append(("compare path", name))
        return self.answer


def ledger_of(folder: Path, identity: dict[str, object] | None = None) -> Ledger:
    ledger = Ledger(f"sqlite:///{folder}/study.db")
    ledger.start({}, NEW if identity is None else identity)
    return ledger


def settle(folder: Path, answer: GateResult | TrainFailure | None, recipe: Recipe = ASKED) -> tuple[Recipe, Notes, int]:
    bench, notes = PathBench(folder=folder), Notes()
    if answer is not None:
        bench.answer = answer
    with ledger_of(folder) as ledger:
        return settle_path(recipe, SMALL, bench, ledger, notes), notes, len(bench.calls)


def test_a_path_that_passes_is_trained_by_and_asked_about_once(tmp_path: Path) -> None:
    recipe, notes, num_asked = settle(tmp_path, None)
    assert (recipe.fast_path, notes.lines, num_asked) == ("bfloat16", ["fast path: bfloat16: equal"], 1)
    again, notes, num_asked = settle(tmp_path, GateResult(passed=False, reason="not asked"))
    assert (again, notes.lines, num_asked) == (recipe, [], 0)
    with ledger_of(tmp_path) as ledger:
        assert path_result(ledger) == GateResult(
            passed=True,
            reason="bfloat16: equal",
            figures=(("asked_for", "bfloat16"), ("trained", "bfloat16"), ("seeds", 3)),
        )
        assert set(gate_seconds(ledger)) == {"fast_path"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (GateResult(passed=False, reason="bfloat16: losses differ: it is refused"), "losses differ"),
        (TrainFailure(kind="crashed", reason="no such instruction"), "crashed: no such instruction"),
    ],
)
def test_a_refused_path_trains_the_usual_way_says_so_in_one_line_and_blocks_nothing(
    tmp_path: Path, answer: GateResult | TrainFailure, words: str
) -> None:
    recipe, notes, _ = settle(tmp_path, answer)
    assert recipe == Recipe()
    (line,) = notes.lines
    assert words in line and line.endswith("refused; the study trains the usual way") and "\n" not in line
    assert settle(tmp_path, None)[0] == Recipe(), "a study that was refused stays slow"
    with ledger_of(tmp_path) as ledger:
        result = path_result(ledger)
    assert result is not None and result.passed and dict(result.figures)["trained"] == "the usual way"
    assert result.reason.endswith("the study trained the usual way")


def test_without_a_fast_path_nothing_is_asked_and_a_study_of_before_goes_on_as_it_trained(tmp_path: Path) -> None:
    recipe, _, num_asked = settle(tmp_path, None, Recipe())
    assert (recipe.fast_path, num_asked) == (None, 0)
    (tmp_path / "old").mkdir()
    with ledger_of(tmp_path / "old", {"training.epochs": 8}) as ledger:
        old = settle_path(Recipe(), SMALL, PathBench(folder=tmp_path), ledger, Silent())
        assert (old.fast_path, path_result(ledger)) == ("channels_last", None)


def without_norms(model: nn.Module) -> nn.Module:
    for name, module in model.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], nn.Identity())
    return model


def counting(trained: list[str | None]) -> Callable[[TinyBench], None]:
    def change(bench: TinyBench) -> None:
        def remember(proposal: object) -> None:
            trained.append(bench.recipe.fast_path)

        bench.train_instead = remember  # type: ignore[assignment]

    return change


@pytest.mark.parametrize("is_planted", [False, True])
def test_a_study_is_not_trained_by_a_fast_path_that_leaves_something_out(
    tmp_path: Path, is_planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_planted:
        monkeypatch.setitem(paths.FAST_PATHS, "channels_last", TrainingPath(prepare=without_norms))
    trained: list[str | None] = []
    recipe = RECIPE.model_copy(update={"fast_path": "channels_last"})
    result = run_tiny(TinyStudy(folder=tmp_path / "study", recipe=recipe, trials=2, change=counting(trained)))
    gate = result.summary.gates["fast_path"]
    assert gate.passed and ("refused" in gate.reason) is is_planted
    assert set(trained) == {None if is_planted else "channels_last"}
    manifest = json.loads((tmp_path / "study" / "manifest.json").read_text())
    assert manifest["fast_path"]["passed"] is not is_planted
    assert "fast_path" in (tmp_path / "study" / "report.html").read_text()
