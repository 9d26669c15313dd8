"""Finished trials for tests: plausible, with every field set where its outcome allows."""

from __future__ import annotations

from hypothesis import strategies as st

from nas.ledger import CandidateCost, Outcome, TrialRecord
from nas.training.score import HeldOutScore, wilson_interval
from nas.trial import Rung, RungVerdict
from profilers.measurement import LatencyEstimate
from search_spaces.candidate import BlockSpec, Candidate


def make_candidate(width: int = 16, *kinds: str) -> Candidate:
    """A candidate that differs by `width` and by the kinds of its blocks."""
    return Candidate(
        space="conv_attention",
        space_version=1,
        input=BlockSpec.of("image", channels=1, height=8, width=8),
        blocks=tuple(BlockSpec.of(kind, width=width) for kind in kinds or ("inverted_residual", "attention")),
        head=BlockSpec.of("classifier", classes=10),
    )


def make_estimate(latency_ms: float, spread: float = 0.02, *, predicted: bool = False) -> LatencyEstimate:
    """An estimate with a relative half-width of `spread`."""
    return LatencyEstimate(
        latency_ms=latency_ms,
        lower_ms=latency_ms * (1 - spread),
        upper_ms=latency_ms * (1 + spread),
        source="predicted" if predicted else "measured",
    )


def make_cost(latency_ms: float, *, predicted: bool = False) -> CandidateCost:
    """A cost whose sizes grow with the latency."""
    return CandidateCost(
        latencies=(("infer", make_estimate(latency_ms, predicted=predicted)),),
        num_params=int(60_000 * latency_ms),
        num_macs=int(900_000 * latency_ms),
        model_bytes=int(250_000 * latency_ms),
        peak_memory_bytes=None if predicted else 48 << 20,
        runtime="tvm",
        tuned_coverage=None if predicted else 0.97,
        parity_max_abs=None if predicted else 2.4e-6,
    )


def make_score(num_right: int, num_examples: int = 360, split: str = "val") -> HeldOutScore:
    """An accuracy with its binomial interval."""
    lower, upper = wilson_interval(num_right, num_examples)
    return HeldOutScore(
        metric="accuracy",
        split="test" if split == "test" else "val",
        value=num_right / num_examples,
        lower=lower,
        upper=upper,
        num_examples=num_examples,
        seeds=(0,),
        slices=(("digit 0", 0.99), ("digit 1", 0.93)),
    )


def make_rung(epochs: int, num_right: int, verdict: RungVerdict) -> Rung:
    """A length of training that a trial reached, compared with three others."""
    num_others = None if verdict == "top" else 3
    score = make_score(num_right)
    return Rung(epochs=epochs, score=score, seconds=epochs / 2, verdict=verdict, num_others=num_others)


def make_record(
    trial: int, outcome: Outcome = Outcome.SCORED, latency_ms: float = 2.0, num_right: int = 330
) -> TrialRecord:
    """A trial with that outcome."""
    is_stopped = outcome is Outcome.STOPPED_EARLY
    is_timed = is_stopped or outcome in (
        Outcome.SCORED, Outcome.OVER_BUDGET, Outcome.DIVERGED, Outcome.TRAIN_FAILED
    )  # fmt: skip
    is_predicted = outcome is Outcome.PREDICTED_OVER_BUDGET
    return TrialRecord(
        trial=trial,
        candidate=make_candidate(16 + trial),
        outcome=outcome,
        cost=make_cost(latency_ms, predicted=is_predicted) if is_timed or is_predicted else None,
        score=make_score(num_right) if outcome is Outcome.SCORED else None,
        error=None if outcome is Outcome.SCORED else f"the reason of trial {trial}",
        seconds=(("tune", 11.5), ("compile", 3.25), ("profile", 4.0), ("train", 7.5)),
        rungs=(make_rung(2, num_right, "promoted"), make_rung(4, num_right, "stopped")) if is_stopped else (),
    )


def records() -> st.SearchStrategy[TrialRecord]:
    """Any trial."""
    return st.builds(
        make_record,
        st.integers(0, 10**6),
        st.sampled_from(list(Outcome)),
        st.floats(1e-3, 1e5),
        st.integers(0, 360),
    )
