"""Opens the screener of a study: with what `nas calibrate` measured on the device, where it was run."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from nas.ledger import Ledger
from nas.search.progress import Watcher
from nas.search.screening import SCREENED_AMOUNTS, PhaseModel, Screener
from profilers.cost_model.candidate_terms import CandidateEncoder, ends_of
from profilers.cost_model.kernel_times import KernelTimes
from profilers.cost_model.store import Calibration, CalibrationKey, load
from profilers.cost_model.terms import CostModelError
from profilers.lock import state_folder
from search_spaces.candidate import Candidate
from search_spaces.layer import Signature
from search_spaces.layers import layers_of
from search_spaces.space import RandomSuggest, SearchSpace

KernelSeconds = Callable[[Sequence[Candidate], str], Mapping[Signature, float]]
"""Seconds of the kernels of candidates in a phase, by the layers they serve, as far as that is known."""
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
    kernel_seconds: KernelSeconds | None = None,
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
        kernel_seconds: what is known of kernels now; a calibration that was fitted with other times is fitted again.
            None leaves calibrations as they are.
    """
    models, amounts = [], []
    for phase in phases:
        calibration = known_calibration(space, phase, fingerprint, watcher)
        if calibration is not None and kernel_seconds is not None:
            calibration = with_times_of_now(calibration, space, kernel_seconds)
        models.append(
            PhaseModel(
                encoder=encoder_of(space, phase) if calibration is None else calibration.encoder,
                phase=phase,
                ledger=ledger,
                calibrated=() if calibration is None else calibration.samples,
            )
        )
        for target in SCREENED_AMOUNTS:
            known = None if calibration is None else calibration.amount(target)
            amounts.append(
                PhaseModel(
                    encoder=encoder_of(space, phase),
                    phase=phase,
                    ledger=ledger,
                    calibrated=() if known is None else known.samples,
                    target=target,
                    # What a study keeps is that of the phase that takes most, which need not be this one.
                    learns=len(phases) == 1,
                )
            )
    return Screener(models, seed=seed, ledger=ledger, trusts=trusts, amounts=amounts)


def with_times_of_now(calibration: Calibration, space: SearchSpace, kernel_seconds: KernelSeconds) -> Calibration:
    """The calibration, fitted again where the known times of its candidates' kernels are no longer what they were.

    Kernels of these candidates alone: they have their records, so a study tunes none of them, and a resumed study sees
    what it saw before.
    """
    encoder = timed_encoder(
        calibration.encoder, [candidate for candidate, _ in calibration.samples], space, kernel_seconds
    )
    return calibration if encoder.kernel_times == calibration.encoder.kernel_times else calibration.refitted(encoder)


def timed_encoder(
    encoder: CandidateEncoder, candidates: Sequence[Candidate], space: SearchSpace, kernel_seconds: KernelSeconds
) -> CandidateEncoder:
    """An encoder with what is known of the kernels of `candidates`."""
    assert encoder.phase is not None, "an encoder of a calibration has its phase"
    layers = [layer for candidate in candidates for layer in layers_of(candidate, encoder.phase)]
    times = KernelTimes.of(layers, kernel_seconds(candidates, encoder.phase))
    return encoder.with_kernel_times(times, random_candidates(space, NUM_TYPICAL, seed=0))


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
