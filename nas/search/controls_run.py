"""Runs the controls of a study: once, on the best network of its front."""

from __future__ import annotations

from typing import Protocol

from nas.front import Direction
from nas.gates.controls import ControlScores
from nas.ledger import Ledger
from nas.search.finalists import Finalist
from nas.search.gate_seconds import timed_gate
from nas.search.progress import Watcher
from nas.search.trained_weights import TrainedWeights
from nas.training.result import Shuffled, TrainFailure
from search_spaces.candidate import Candidate

EVENT = "controls"


class ControlsBench(Protocol):
    """The tool of the controls."""

    def score_shuffled(self, candidate: Candidate, weights: TrainedWeights) -> Shuffled | TrainFailure:
        """Scores on val with shuffled train labels, and with shuffled val inputs."""
        ...


def run_controls(
    finalists: tuple[Finalist, ...], bench: ControlsBench, ledger: Ledger, direction: Direction, watcher: Watcher
) -> None:
    """Controls of the best member by val; what is known of the same trial is not done again."""
    if not finalists:
        return
    sign = 1.0 if direction == "maximize" else -1.0

    def quality(finalist: Finalist) -> float:
        assert finalist.record.score is not None
        return sign * finalist.record.score.value

    best = max(finalists, key=quality)
    known = known_controls(ledger)
    if known is not None and known.trial == best.record.trial:
        return
    watcher.stage("controls")
    with timed_gate(EVENT, ledger):
        seen = bench.score_shuffled(best.record.candidate, best.weights)
    if isinstance(seen, TrainFailure):
        watcher.note(f"controls: trial {best.record.trial}: {seen.kind}: {seen.reason}; they are not in the report")
        return
    assert best.record.score is not None
    scores = ControlScores(
        trial=best.record.trial,
        trained=best.record.score,
        untrained=best.weights.untrained_score,
        shuffled_labels=seen.labels,
        shuffled_inputs=seen.inputs,
    )
    ledger.add_event(EVENT, scores.to_json())


def known_controls(ledger: Ledger) -> ControlScores | None:
    """The last controls of a study."""
    events = ledger.events(EVENT)
    return ControlScores.from_json(events[-1].detail) if events else None
