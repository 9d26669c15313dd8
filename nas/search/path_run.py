"""Puts a study's fast path through its gate: once, before the first trial; refused, the study trains the usual way."""

from __future__ import annotations

from typing import Protocol

from nas.gates.result import GateResult
from nas.ledger import Ledger
from nas.phases import reference_of
from nas.search.gate_seconds import timed_gate
from nas.search.progress import Watcher
from nas.training.recipe import Recipe
from nas.training.result import TrainFailure
from search_spaces.candidate import Candidate
from search_spaces.space import SearchSpace

EVENT = "fast_path"
KEY = "training.fast_path"
BEFORE_THERE_WERE_ANY = "channels_last"
"""How every study trained that was begun before fast paths were put through a gate: it goes on like that."""


class PathBench(Protocol):
    """The tool of the gate."""

    def compare_path(self, name: str, candidate: Candidate) -> GateResult | TrainFailure:
        """Trains the candidate by the slow and by the fast path, with the same seeds and batches."""
        ...


def settle_path(recipe: Recipe, space: SearchSpace, bench: PathBench, ledger: Ledger, watcher: Watcher) -> Recipe:
    """The recipe that the study trains by: with the fast path that was asked for, if it passed.

    A study that knows the answer is not asked again.
    """
    study = ledger.study()
    if study is not None and KEY not in study.identity:
        return recipe.model_copy(update={"fast_path": BEFORE_THERE_WERE_ANY})
    name = recipe.fast_path
    if name is None:
        return recipe
    if not ledger.events(EVENT):
        with timed_gate(EVENT, ledger):
            result = _compared(name, space, bench)
            detail = {"name": name, "passed": result.passed, "reason": result.reason, "figures": dict(result.figures)}
            ledger.add_event(EVENT, detail)
        watcher.note(f"fast path: {result.reason}" + ("" if result.passed else "; the study trains the usual way"))
    return recipe if ledger.events(EVENT)[0].detail["passed"] else recipe.model_copy(update={"fast_path": None})


def _compared(name: str, space: SearchSpace, bench: PathBench) -> GateResult:
    _, reference = reference_of(space)
    seen = bench.compare_path(name, reference)
    if isinstance(seen, TrainFailure):
        return GateResult(passed=False, reason=f"{name}: {seen.kind}: {seen.reason}: it is refused")
    return seen


def path_result(ledger: Ledger) -> GateResult | None:
    """What the gate said of this study; None where no fast path was asked for.

    A refused path blocks nothing: nothing was trained by it, and the reason says so.
    """
    events = ledger.events(EVENT)
    if not events:
        return None
    detail = events[0].detail
    used = detail["name"] if detail["passed"] else "the usual way"
    reason = detail["reason"] if detail["passed"] else f"{detail['reason']}; the study trained the usual way"
    figures = (("asked_for", detail["name"]), ("trained", used), *detail["figures"].items())
    return GateResult(passed=True, reason=reason, figures=figures)
