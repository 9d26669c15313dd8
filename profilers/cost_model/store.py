"""Calibrations as plain JSON: who measured what where, and the fit; foreign ones are refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from profilers.cost_model.candidate_terms import AMOUNTS, CandidateEncoder, Target
from profilers.cost_model.interval import Errors
from profilers.cost_model.kernel_times import KernelTimes
from profilers.cost_model.model import MIN_SAMPLES, CostModel
from profilers.cost_model.terms import CostModelError
from profilers.json_file import write_json
from search_spaces.candidate import Candidate, CandidateError

_FORMAT = 2
_READABLE = (1, _FORMAT)
"""Format 1 had latencies alone: it is read as a calibration without other costs and without known kernel times."""

_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)

Samples = tuple[tuple[Candidate, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountCalibration:
    """A model of a cost besides the latency.

    Attributes:
        target: what is predicted.
        samples: (candidate, amount in the target's unit).
        model: the fit.
    """

    target: Target
    samples: Samples
    model: CostModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A cost model of one space, phase and device, with the measurements that it came from.

    Attributes:
        fingerprint: of the device.
        phase: what was timed.
        encoder: which candidates it takes.
        samples: (candidate, latency in ms); the model can always be fitted again from these.
        model: the fit.
        amounts: models of other costs, where they were measured.
    """

    fingerprint: str
    phase: str
    encoder: CandidateEncoder
    samples: Samples
    model: CostModel
    amounts: tuple[AmountCalibration, ...] = ()

    @classmethod
    def fit(
        cls,
        *,
        fingerprint: str,
        phase: str,
        encoder: CandidateEncoder,
        samples: Samples,
        amounts: Mapping[Target, Samples] | None = None,
    ) -> Calibration:
        """Fits a model to the samples, and one to those of each other cost that was measured often enough.

        Raises:
            CostModelError: too few samples, a latency that is none, or an encoder of another phase.
        """
        if encoder.phase not in (None, phase):
            raise CostModelError(f"the encoder is of phase {encoder.phase!r}, the latencies are of {phase!r}")
        encoded = encoder.encode([candidate for candidate, _ in samples])
        model = CostModel.fit(encoded, np.array([latency for _, latency in samples]))
        others = tuple(
            AmountCalibration(target=target, samples=seen, model=fit_target(encoder, target, seen))
            for target, seen in (amounts or {}).items()
            if len(seen) >= MIN_SAMPLES
        )
        return cls(fingerprint=fingerprint, phase=phase, encoder=encoder, samples=samples, model=model, amounts=others)

    def refitted(self, encoder: CandidateEncoder) -> Calibration:
        """The same measurements seen through another encoder, one with other known kernel times for instance."""
        return Calibration.fit(
            fingerprint=self.fingerprint, phase=self.phase, encoder=encoder, samples=self.samples,
            amounts={each.target: each.samples for each in self.amounts},
        )  # fmt: skip

    def amount(self, target: Target) -> AmountCalibration | None:
        """The model of another cost; None where it was not measured."""
        return next((each for each in self.amounts if each.target == target), None)

    @property
    def key(self) -> CalibrationKey:
        """What it is of."""
        return CalibrationKey(
            space=self.encoder.space,
            space_version=self.encoder.space_version,
            ends=self.encoder.ends,
            phase=self.phase,
            fingerprint=self.fingerprint,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON that `from_json` reads back."""
        return {
            "format": _FORMAT,
            "space": self.encoder.space,
            "space_version": self.encoder.space_version,
            "ends": self.encoder.ends,
            "fingerprint": self.fingerprint,
            "phase": self.phase,
            "typical": list(self.encoder.typical),
            "typical_bytes": list(self.encoder.typical_bytes),
            "kernel_times": None if self.encoder.kernel_times is None else self.encoder.kernel_times.to_json(),
            "typical_s": self.encoder.typical_s,
            "samples": _samples_to_json(self.samples),
            "model": model_to_json(self.model),
            "amounts": {
                each.target: {"samples": _samples_to_json(each.samples), "model": model_to_json(each.model)}
                for each in self.amounts
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Calibration:
        """The inverse of `to_json`; anything else raises `KeyError`, `TypeError`, `ValueError` or `CandidateError`."""
        if data["format"] not in _READABLE:
            raise ValueError(f"format {data['format']!r}, this version reads {' and '.join(map(str, _READABLE))}")
        is_old = data["format"] == 1
        times = None if is_old or data["kernel_times"] is None else KernelTimes.from_json(data["kernel_times"])
        encoder = CandidateEncoder(
            space=str(data["space"]), space_version=int(data["space_version"]), ends=str(data["ends"]),
            typical=tuple(float(each) for each in data["typical"]), phase=str(data["phase"]),
            typical_bytes=() if is_old else tuple(float(each) for each in data["typical_bytes"]),
            kernel_times=times, typical_s=1.0 if is_old else _above_zero(data["typical_s"]),
        )  # fmt: skip
        return cls(
            fingerprint=str(data["fingerprint"]),
            phase=str(data["phase"]),
            encoder=encoder,
            samples=_samples_from_json(data["samples"]),
            model=model_from_json(data["model"]),
            amounts=() if is_old else tuple(
                AmountCalibration(
                    target=_target(name), samples=_samples_from_json(each["samples"]),
                    model=model_from_json(each["model"]),
                )
                for name, each in data["amounts"].items()
            ),
        )  # fmt: skip


def fit_target(encoder: CandidateEncoder, target: Target, samples: Samples) -> CostModel:
    """A model of one cost; see `CostModel.fit`, which speaks of latencies but takes any number above zero."""
    encoded = encoder.encode([candidate for candidate, _ in samples], target)
    return CostModel.fit(encoded, np.array([amount for _, amount in samples]))


def _samples_to_json(samples: Samples) -> list[list[Any]]:
    return [[json.loads(candidate.canonical_json()), amount] for candidate, amount in samples]


def _samples_from_json(rows: Any) -> Samples:
    return tuple((Candidate.from_json(candidate), float(amount)) for candidate, amount in rows)


def _above_zero(value: Any) -> float:
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"typical_s is {value!r}; allowed: finite, above 0")
    return float(value)


def _target(name: str) -> Target:
    for target in AMOUNTS:
        if target == name:
            return target
    raise ValueError(f"target {name!r} is unknown; allowed: {', '.join(AMOUNTS)}")


def model_to_json(model: CostModel) -> dict[str, Any]:
    """A model's coefficients and errors as plain JSON."""
    return {
        "encoding": model.encoding,
        "predictor": model.predictor,
        "typical_ms": model.typical_ms,
        "centre": model.centre,
        "coefficients": [each.tolist() for each in model.coefficients],
        "errors": {"folds": model.errors.folds.tolist(), "scaled": model.errors.scaled.tolist(),
                   "exponent": model.errors.exponent},
        "held_out": dict(model.held_out),
        "num_samples": model.num_samples,
    }  # fmt: skip


def model_from_json(data: Mapping[str, Any]) -> CostModel:
    """The inverse of `model_to_json`; anything else raises `KeyError`, `TypeError` or `ValueError`."""
    if data["predictor"] not in ("terms", "macs", "counts"):
        raise ValueError(f"predictor {data['predictor']!r} is unknown")
    errors = Errors(
        folds=np.array(data["errors"]["folds"], int),
        scaled=np.array(data["errors"]["scaled"], float),
        exponent=float(data["errors"]["exponent"]),
    )
    coefficients = tuple(np.array(each, float) for each in data["coefficients"])
    numbers = [*coefficients, errors.scaled, np.array([data["typical_ms"], data["centre"], errors.exponent], float)]
    if not all(np.isfinite(each).all() for each in numbers) or float(data["typical_ms"]) <= 0:
        raise ValueError("a number is not finite, or the typical latency is not above zero")
    return CostModel(
        encoding=str(data["encoding"]),
        predictor=data["predictor"],
        typical_ms=float(data["typical_ms"]),
        centre=float(data["centre"]),
        coefficients=coefficients,
        errors=errors,
        held_out={str(name): float(value) for name, value in data["held_out"].items()},
        num_samples=int(data["num_samples"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationKey:
    """What a calibration is of; two that differ in anything are foreign to each other."""

    space: str
    space_version: int
    ends: str
    phase: str
    fingerprint: str

    def path(self, cache: Path) -> Path:
        """Where it is kept in a user's cache.

        >>> CalibrationKey(space="s", space_version=2, ends="[]", phase="decode@512", fingerprint="ab").path(Path("c"))
        PosixPath('c/cost_models/s-v2-decode-512-4f53cda1-ab.json')
        """
        digest = hashlib.sha256(self.ends.encode()).hexdigest()[:8]
        phase = self.phase.replace("@", "-")
        return cache / "cost_models" / f"{self.space}-v{self.space_version}-{phase}-{digest}-{self.fingerprint}.json"


def save(calibration: Calibration, path: Path) -> None:
    """Writes the file, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    write_json(path, calibration.to_json())


def load(path: Path, key: CalibrationKey) -> Calibration:
    """Reads a calibration that is of `key`.

    Raises:
        CostModelError: no such file, damaged, or of another space, version, task, phase or device.
    """
    again = "; run `nas calibrate` on this device"
    try:
        calibration = Calibration.from_json(json.loads(path.read_text()))
    except FileNotFoundError as error:
        raise CostModelError(f"{path}: there is no calibration{again}") from error
    except (*_UNREADABLE, CandidateError, CostModelError) as error:
        raise CostModelError(f"{path}: not a calibration that this version can read ({error!r}){again}") from error
    foreign = [
        f"{name} is {getattr(calibration.key, name)!r}, allowed here: {getattr(key, name)!r}"
        for name in CalibrationKey.__slots__
        if getattr(calibration.key, name) != getattr(key, name)
    ]
    if foreign:
        raise CostModelError(f"{path}: a foreign calibration: {'; '.join(foreign)}{again}")
    return calibration
