"""Remembers in the ledger what winners measured, phase by phase, so that a finished study is not measured anew."""

from __future__ import annotations

from nas.ledger import Ledger
from profilers.artifact import Artifact
from profilers.errors import ProfileFailure
from profilers.measurement import Measurement

_EVENT = "winner_measured"
_PLAIN_EVENT = "winner_plain_look"


def remember_measurements(
    ledger: Ledger,
    trial: int,
    artifact: Artifact,
    measurement: Measurement,
    other: Measurement | ProfileFailure | None,
) -> None:
    """Writes down a winner's second look at one phase, raw blocks included, once for each artifact.

    Args:
        ledger: of the study, whose latencies are all of one device.
        trial: the winner's.
        artifact: compiled with the trained weights; another build is another measurement.
        measurement: its own.
        other: the same network in ONNX Runtime; kept only where it may be used.
    """
    if remembered_measurements(ledger, trial, artifact)[0] is not None:
        return
    is_usable = isinstance(other, Measurement) and other.rejected_because is None
    ledger.add_event(
        _EVENT,
        {
            "trial": trial,
            "phase": artifact.phase,
            "artifact": artifact.digest,
            "measurement": measurement.to_json(),
            "onnxruntime": other.to_json() if is_usable and isinstance(other, Measurement) else None,
        },
    )


def remembered_measurements(
    ledger: Ledger, trial: int, artifact: Artifact
) -> tuple[Measurement, Measurement | None] | tuple[None, None]:
    """What an earlier run measured of the same artifact; nothing where one of the two is missing."""
    for event in ledger.events(_EVENT):
        same = event.detail["trial"] == trial and event.detail["artifact"] == artifact.digest
        if same and event.detail["onnxruntime"] is not None:
            return Measurement.from_json(event.detail["measurement"]), Measurement.from_json(
                event.detail["onnxruntime"]
            )
    return None, None


def remember_plain_look(ledger: Ledger, trial: int, artifact: Artifact, measurement: Measurement) -> None:
    """Writes down a winner's one look at a phase that the study does not time."""
    ledger.add_event(
        _PLAIN_EVENT,
        {
            "trial": trial,
            "phase": artifact.phase,
            "artifact": artifact.digest,
            "measurement": measurement.to_json(),
        },
    )


def remembered_plain_look(ledger: Ledger, trial: int, artifact: Artifact) -> Measurement | None:
    """What an earlier run saw of the same artifact; None where it saw nothing."""
    for event in ledger.events(_PLAIN_EVENT):
        if event.detail["trial"] == trial and event.detail["artifact"] == artifact.digest:
            return Measurement.from_json(event.detail["measurement"])
    return None
