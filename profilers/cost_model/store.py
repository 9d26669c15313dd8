"""Calibrations as plain JSON: who measured what where, and the fit; foreign ones are refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from profilers.cost_model.candidate_terms import CandidateEncoder
from profilers.cost_model.interval import Errors
from profilers.cost_model.model import CostModel
from profilers.cost_model.terms import CostModelError
from profilers.json_file import write_json
from search_spaces.candidate import Candidate, CandidateError

_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A cost model of one space, phase and device, with the measurements that it came from.

    Attributes:
        fingerprint: of the device.
        phase: what was timed.
        encoder: which candidates it takes.
        samples: (candidate, latency in ms); the model can always be fitted again from these.
        model: the fit.
    """

    fingerprint: str
    phase: str
    encoder: CandidateEncoder
    samples: tuple[tuple[Candidate, float], ...]
    model: CostModel

    @classmethod
    def fit(
        cls, *, fingerprint: str, phase: str, encoder: CandidateEncoder, samples: tuple[tuple[Candidate, float], ...]
    ) -> Calibration:
        """Fits a model to the samples.

        Raises:
            CostModelError: too few samples, a latency that is none, or an encoder of another phase.
        """
        if encoder.phase not in (None, phase):
            raise CostModelError(f"the encoder is of phase {encoder.phase!r}, the latencies are of {phase!r}")
        encoded = encoder.encode([candidate for candidate, _ in samples])
        model = CostModel.fit(encoded, np.array([latency for _, latency in samples]))
        return cls(fingerprint=fingerprint, phase=phase, encoder=encoder, samples=samples, model=model)

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
            "samples": [[json.loads(candidate.canonical_json()), latency] for candidate, latency in self.samples],
            "model": model_to_json(self.model),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Calibration:
        """The inverse of `to_json`; anything else raises `KeyError`, `TypeError`, `ValueError` or `CandidateError`."""
        if data["format"] != _FORMAT:
            raise ValueError(f"format {data['format']!r}, this version reads {_FORMAT}")
        encoder = CandidateEncoder(
            space=str(data["space"]), space_version=int(data["space_version"]), ends=str(data["ends"]),
            typical=tuple(float(each) for each in data["typical"]), phase=str(data["phase"]),
        )  # fmt: skip
        return cls(
            fingerprint=str(data["fingerprint"]),
            phase=str(data["phase"]),
            encoder=encoder,
            samples=tuple((Candidate.from_json(candidate), float(latency)) for candidate, latency in data["samples"]),
            model=model_from_json(data["model"]),
        )


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
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CandidateError, RecursionError) as error:
        raise CostModelError(f"{path}: not a calibration that this version can read ({error!r}){again}") from error
    foreign = [
        f"{name} is {getattr(calibration.key, name)!r}, allowed here: {getattr(key, name)!r}"
        for name in CalibrationKey.__slots__
        if getattr(calibration.key, name) != getattr(key, name)
    ]
    if foreign:
        raise CostModelError(f"{path}: a foreign calibration: {'; '.join(foreign)}{again}")
    return calibration
