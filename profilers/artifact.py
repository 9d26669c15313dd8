"""A compiled candidate as a folder whose content is its name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profilers.errors import ProfilerError
from search_spaces.candidate import TensorSpec

MANIFEST_NAME = "artifact.json"
_FORMAT = 1
_KEYS = {
    "format", "candidate_id", "phase", "runtime", "target", "precision", "num_threads",
    "inputs", "outputs", "files", "tuned_coverage", "model_bytes",
}  # fmt: skip
_OPTIONAL_KEYS = {"activation_bytes"}


class ArtifactError(ProfilerError):
    """A folder that is not the artifact it claims to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One candidate, phase, runtime, target and precision, with the hash of every file.

    Attributes:
        folder: where the files are; not part of the identity.
        candidate_id: the candidate, or the SHA-256 prefix of a foreign model file.
        phase: entry point, for instance `infer`.
        runtime: `tvm` or `onnxruntime`.
        target: the compiler's target string, or `any` for a portable model file.
        precision: `float32`, ...
        num_threads: threads the code was compiled and tuned for.
        inputs, outputs: in calling order.
        files: (name, SHA-256) of each file, sorted by name. `parity.npz` holds `input_<i>` and
            `output_<i>`, the reference's answers on fixed inputs, in calling order.
        tuned_coverage: share of MACs in kernels that have a tuning record; None where the
            runtime brings its own kernels.
        model_bytes: size of code and weights on disk.
        activation_bytes: inputs, outputs and intermediate values alive at once, at most; None where nobody knows.
    """

    folder: Path
    candidate_id: str
    phase: str
    runtime: str
    target: str
    precision: str
    num_threads: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    files: tuple[tuple[str, str], ...]
    tuned_coverage: float | None
    model_bytes: int
    activation_bytes: int | None = None

    @property
    def digest(self) -> str:
        """SHA-256 over everything but the folder: the artifact's identity."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def path(self, name: str) -> Path:
        """The file `name`, which must be one the artifact lists."""
        if name not in dict(self.files):
            raise ArtifactError(f"artifact {self.folder}: no file {name!r}; it lists {[n for n, _ in self.files]}")
        return self.folder / name

    def verify(self) -> None:
        """Hashes every file again; raises before anything is loaded when one differs."""
        for name, expected in self.files:
            path = self.folder / name
            if not path.is_file():
                raise ArtifactError(f"artifact {self.folder}: file {name!r} is missing; compile it again")
            seen = hash_file(path)
            if seen != expected:
                raise ArtifactError(
                    f"artifact {self.folder}: file {name!r} has SHA-256 {seen[:12]}, the manifest says"
                    f" {expected[:12]}; delete the folder and compile it again"
                )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON without the folder."""
        return {
            "format": _FORMAT,
            "candidate_id": self.candidate_id,
            "phase": self.phase,
            "runtime": self.runtime,
            "target": self.target,
            "precision": self.precision,
            "num_threads": self.num_threads,
            "inputs": [_spec_to_json(spec) for spec in self.inputs],
            "outputs": [_spec_to_json(spec) for spec in self.outputs],
            "files": dict(self.files),
            "tuned_coverage": self.tuned_coverage,
            "model_bytes": self.model_bytes,
            **({} if self.activation_bytes is None else {"activation_bytes": self.activation_bytes}),
        }

    def save(self) -> None:
        """Writes the manifest into the folder, last, so that a folder without one is unfinished."""
        temporary = self.folder / (MANIFEST_NAME + ".tmp")
        temporary.write_text(json.dumps(self.to_json(), indent=1, sort_keys=True))
        temporary.replace(self.folder / MANIFEST_NAME)

    @classmethod
    def load(cls, folder: Path) -> Artifact:
        """Reads a folder's manifest; call `verify` before loading any of its files."""
        path = folder / MANIFEST_NAME
        try:
            data = json.loads(path.read_text())
        except FileNotFoundError:
            raise ArtifactError(f"{folder}: not an artifact, it has no {MANIFEST_NAME}") from None
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"{path}: not JSON ({error}); delete the folder and compile it again") from error
        try:
            return cls._from_json(folder, data)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ArtifactError(f"{path}: damaged ({error}); delete the folder and compile it again") from error

    @classmethod
    def _from_json(cls, folder: Path, data: Mapping[str, Any]) -> Artifact:
        if not isinstance(data, Mapping) or set(data) - _OPTIONAL_KEYS != _KEYS or data["format"] != _FORMAT:
            raise ArtifactError(f"{folder}: manifest of an unknown form; this version reads format {_FORMAT}")
        for name in data["files"]:
            if Path(name).name != name or name in {"", ".", ".."}:
                raise ArtifactError(f"{folder}: file name {name!r} leaves the folder; allowed: plain names")
        return cls(
            folder=folder,
            candidate_id=data["candidate_id"],
            phase=data["phase"],
            runtime=data["runtime"],
            target=data["target"],
            precision=data["precision"],
            num_threads=data["num_threads"],
            inputs=tuple(_spec_from_json(spec) for spec in data["inputs"]),
            outputs=tuple(_spec_from_json(spec) for spec in data["outputs"]),
            files=tuple(sorted(data["files"].items())),
            tuned_coverage=data["tuned_coverage"],
            model_bytes=data["model_bytes"],
            activation_bytes=None if data.get("activation_bytes") is None else int(data["activation_bytes"]),
        )


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _spec_to_json(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "shape": list(spec.shape), "dtype": spec.dtype}


def _spec_from_json(data: Mapping[str, Any]) -> TensorSpec:
    return TensorSpec(name=data["name"], shape=tuple(data["shape"]), dtype=data["dtype"])
