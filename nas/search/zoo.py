"""The space's named networks, measured at the end of a study so that its report shows them beside the winners.

They are compiled and timed, not trained: a score is there only where one of them was a trial. Nothing is held
against what is seen, and a network that does not compile or cannot be measured is a line in the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from nas.ledger import Ledger
from nas.report.summary import ZooNetwork
from nas.search.pipeline import Proposal, Stopped, Workbench, measure_phases
from nas.search.progress import Watcher
from nas.trial import CandidateCost, TrialRecord
from search_spaces.candidate import Candidate
from search_spaces.space import SearchSpace, replay

EVENT = "zoo"
LIMIT_S = 300.0
"""After so long no further network is begun, as on a machine whose kernels are not tuned yet each may take minutes;
running the same command again goes on with the rest."""


def measure_zoo(
    space: SearchSpace,
    bench: Workbench,
    ledger: Ledger,
    watcher: Watcher,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Measures each named network in the timed phases, unless a trial did; once a study, failures included.

    Args:
        space: whose networks.
        bench: the tools, and the phases.
        ledger: what is in it is not measured again.
        watcher: told how far it is, and what was left out.
        clock: seconds, for tests.
    """
    seen = {event.detail["candidate_id"] for event in ledger.events(EVENT)}
    networks = _networks(space)
    begun = clock()
    for number, (name, candidate) in enumerate(networks):
        if candidate.candidate_id in seen or _trial_cost(candidate, bench.phases, ledger) is not None:
            continue
        if clock() - begun > LIMIT_S:
            watcher.note(f"network {name!r} of the space and those after it are not measured: {LIMIT_S:.0f} s are over")
            return
        watcher.stage("zoo", number, len(networks))
        started = clock()
        # Without budgets: over one or not, all phases of a network to compare with are wanted.
        measured = measure_phases(Proposal(trial=0, candidate=candidate), bench)
        failure = f"{measured.outcome}: {measured.reason}" if isinstance(measured, Stopped) else None
        if failure is not None:
            watcher.note(f"network {name!r} of the space is not in the comparison: {failure}")
        detail = {
            "candidate_id": candidate.candidate_id,
            "cost": None if isinstance(measured, Stopped) else measured.cost.to_json(),
            "failure": failure,
            "stages": [list(pair) for pair in measured.seconds],
            "seconds": clock() - started,
        }
        ledger.add_event(EVENT, detail)
        seen.add(candidate.candidate_id)


def zoo_of(space: SearchSpace, phases: Sequence[str], ledger: Ledger) -> tuple[ZooNetwork, ...]:
    """What is known of the space's named networks, in the space's order; those nothing is known of are left out.

    Args:
        space: whose networks.
        phases: the timed ones, the primary one first.
        ledger: of the study.
    """
    events = {event.detail["candidate_id"]: event.detail for event in ledger.events(EVENT)}
    zoo = []
    for name, candidate in _networks(space):
        cost, failure = _trial_cost(candidate, phases, ledger), None
        detail = events.get(candidate.candidate_id)
        if cost is None and detail is not None:
            failure = detail["failure"]
            cost = None if detail["cost"] is None else CandidateCost.from_json(detail["cost"])
        if cost is None and failure is None:
            continue
        scores = [record.score for record in _trials(candidate, ledger) if record.score is not None]
        zoo.append(
            ZooNetwork(
                name=name, candidate_id=candidate.candidate_id, cost=cost, failure=failure,
                val_score=scores[0] if scores else None,
            )
        )  # fmt: skip
    return tuple(zoo)


def zoo_seconds(ledger: Ledger) -> tuple[tuple[str, float], ...]:
    """(stage, wall seconds) of measuring the zoo."""
    return tuple((stage, seconds) for event in ledger.events(EVENT) for stage, seconds in event.detail["stages"])


def _networks(space: SearchSpace) -> list[tuple[str, Candidate]]:
    return [(name, replay(space, choices)) for name, choices in space.references().items()]


def _trials(candidate: Candidate, ledger: Ledger) -> tuple[TrialRecord, ...]:
    return tuple(each for each in ledger.by_candidate(candidate.candidate_id) if each.duplicate_of is None)


def _trial_cost(candidate: Candidate, phases: Sequence[str], ledger: Ledger) -> CandidateCost | None:
    """What a trial of the network measured; None unless it did so in every one of the phases."""
    for record in _trials(candidate, ledger):
        if record.cost is not None:
            estimates = [record.cost.latency(phase) for phase in phases]
            if all(each is not None and each.source == "measured" for each in estimates):
                return record.cost
    return None
