"""Opens the screener of a study: with what `nas calibrate` measured on the device, where it was run."""

from __future__ import annotations

import random
from collections.abc import Sequence

from nas.ledger import Ledger
from nas.search.progress import Watcher
from nas.search.screening import PhaseModel, Screener
from profilers.cost_model.candidate_terms import CandidateEncoder, ends_of
from profilers.cost_model.store import Calibration, CalibrationKey, load
from profilers.cost_model.terms import CostModelError
from profilers.lock import state_folder
from search_spaces.candidate import Candidate
from search_spaces.space import RandomSuggest, SearchSpace

NUM_TYPICAL = 200
"""Random candidates whose mean is what a typical one has of each term."""


def open_screener(
    space: SearchSpace,
    phases: Sequence[str],
    fingerprint: str,
    *,
    seed: int,
    ledger: Ledger,
    watcher: Watcher,
    trusts: bool = False,
) -> Screener:
    """A screener for one study; without a calibration it learns from the study's own measurements.

    Args:
        space: whose candidates.
        phases: the timed ones, the primary one first.
        fingerprint: of the device.
        seed: of the study.
        ledger: of the study.
        watcher: told of a calibration that cannot be used.
        trusts: whether what is surely within the budgets may go unmeasured.
    """
    models = [open_model(space, phase, fingerprint, ledger, watcher) for phase in phases]
    return Screener(models, seed=seed, ledger=ledger, trusts=trusts)


def open_model(space: SearchSpace, phase: str, fingerprint: str, ledger: Ledger, watcher: Watcher) -> PhaseModel:
    """The cost model of one phase in one study."""
    calibration = known_calibration(space, phase, fingerprint, watcher)
    return PhaseModel(
        encoder=encoder_of(space, phase) if calibration is None else calibration.encoder,
        phase=phase,
        fingerprint=fingerprint,
        ledger=ledger,
        calibrated=() if calibration is None else calibration.samples,
    )


def known_calibration(space: SearchSpace, phase: str, fingerprint: str, watcher: Watcher) -> Calibration | None:
    """The calibration of a space, phase and device in the user's cache, if there is one that can be used."""
    key = key_of(space, phase, fingerprint)
    path = key.path(state_folder())
    if not path.exists():
        return None
    try:
        return load(path, key)
    except CostModelError as error:
        watcher.note(f"the calibration is not used: {error}")
        return None


def key_of(space: SearchSpace, phase: str, fingerprint: str) -> CalibrationKey:
    """What a calibration of `space` on a device is kept under."""
    return CalibrationKey(
        space=space.name,
        space_version=space.version,
        ends=ends_of(random_candidates(space, 1, seed=0)[0]),
        phase=phase,
        fingerprint=fingerprint,
    )


def encoder_of(space: SearchSpace, phase: str) -> CandidateEncoder:
    """The encoder of a phase of a space: the same on every machine."""
    return CandidateEncoder.from_candidates(random_candidates(space, NUM_TYPICAL, seed=0), phase)


def random_candidates(space: SearchSpace, num: int, *, seed: int) -> list[Candidate]:
    """Uniformly random candidates, duplicates included."""
    generator = random.Random(seed)
    return [space.sample(RandomSuggest(generator)) for _ in range(num)]
