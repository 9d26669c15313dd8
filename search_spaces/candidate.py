"""What a candidate network is: pure data with a stable identity, no torch."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Value = int | float | str | bool
"""What one choice or option can hold; survives JSON unchanged."""

CANDIDATE_ID_LENGTH = 12
"""Hex digits of SHA-256 kept: 48 bits, a clash is expected after 20 million candidates."""


class CandidateError(ValueError):
    """A candidate, block or option that cannot be: names the field and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Name, shape (batch included) and dtype of one tensor that enters or leaves a phase."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.shape):
            raise CandidateError(f"tensor {self.name!r}: shape {self.shape} has a size below 1")

    @property
    def num_elements(self) -> int:
        """Product of the shape.

        >>> TensorSpec(name="image", shape=(1, 3, 32, 32)).num_elements
        3072
        """
        product = 1
        for size in self.shape:
            product *= size
        return product


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSpec:
    """One block of a network as data: its kind and its options, sorted by name.

    The same shape serves a candidate's input and head: all three are "a kind with options".

    >>> block = BlockSpec.of("attention", width=64, heads=2)
    >>> block.options
    (('heads', 2), ('width', 64))
    >>> block.integer("width")
    64
    """

    kind: str
    options: tuple[tuple[str, Value], ...] = ()

    def __post_init__(self) -> None:
        names = [name for name, _ in self.options]
        if names != sorted(set(names)):
            raise CandidateError(f"block {self.kind!r}: options {names} must be sorted and unique; use BlockSpec.of")
        for name, value in self.options:
            if not isinstance(value, (int, float, str, bool)):
                raise CandidateError(
                    f"block {self.kind!r}: option {name!r} is a {type(value).__name__}; allowed: int, float, str, bool"
                )
            if isinstance(value, float) and not math.isfinite(value):
                raise CandidateError(f"block {self.kind!r}: option {name!r} is {value}; allowed: finite numbers")

    @classmethod
    def of(cls, kind: str, **options: Value) -> BlockSpec:
        """Makes a block from keyword options, in any order."""
        return cls(kind=kind, options=tuple(sorted(options.items())))

    def __getitem__(self, name: str) -> Value:
        for key, value in self.options:
            if key == name:
                return value
        raise CandidateError(f"block {self.kind!r} has no option {name!r}; it has {[key for key, _ in self.options]}")

    def integer(self, name: str) -> int:
        """The option `name`, which must be a whole number."""
        value = self[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise CandidateError(f"block {self.kind!r}: option {name!r} is {value!r}; allowed: a whole number")
        return value

    def to_json(self) -> dict[str, Any]:
        """Plain JSON: `{"kind": ..., "options": {...}}`."""
        return {"kind": self.kind, "options": dict(self.options)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BlockSpec:
        """The inverse of `to_json`; unknown keys are refused."""
        _require_keys("block", data, {"kind", "options"})
        if not isinstance(data["kind"], str) or not isinstance(data["options"], Mapping):
            raise CandidateError(f"block: kind must be text and options an object, seen {data!r}")
        return cls(kind=data["kind"], options=tuple(sorted(data["options"].items())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A network as pure data; two candidates with the same content have the same id.

    Attributes:
        space: name of the search space that made it.
        space_version: version of that space; changes when the same choices build another network.
        input: what enters, for instance `BlockSpec.of("image", channels=1, height=8, width=8)`.
        blocks: the network, first to last.
        head: what leaves, for instance `BlockSpec.of("classifier", classes=10)`.
    """

    space: str
    space_version: int
    input: BlockSpec
    blocks: tuple[BlockSpec, ...]
    head: BlockSpec

    @property
    def candidate_id(self) -> str:
        """First 12 hex digits of the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()[:CANDIDATE_ID_LENGTH]

    def canonical_json(self) -> str:
        """JSON with sorted keys and no spaces: the text that the id is a hash of."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON that `from_json` reads back."""
        return {
            "space": self.space,
            "space_version": self.space_version,
            "input": self.input.to_json(),
            "blocks": [block.to_json() for block in self.blocks],
            "head": self.head.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Candidate:
        """Reads `to_json`'s form back; unknown or missing keys are refused by name."""
        _require_keys("candidate", data, {"space", "space_version", "input", "blocks", "head"})
        if not isinstance(data["space"], str) or type(data["space_version"]) is not int:
            raise CandidateError("candidate: space must be text and space_version a whole number")
        if not isinstance(data["blocks"], list):
            raise CandidateError(f"candidate: blocks must be a list, seen {type(data['blocks']).__name__}")
        return cls(
            space=data["space"],
            space_version=data["space_version"],
            input=BlockSpec.from_json(data["input"]),
            blocks=tuple(BlockSpec.from_json(block) for block in data["blocks"]),
            head=BlockSpec.from_json(data["head"]),
        )


def _require_keys(what: str, data: Any, allowed: set[str]) -> None:
    if not isinstance(data, Mapping):
        raise CandidateError(f"{what}: a {type(data).__name__} where a JSON object is needed")
    unknown, missing = sorted(set(data) - allowed), sorted(allowed - set(data))
    if unknown or missing:
        raise CandidateError(f"{what}: unknown keys {unknown}, missing keys {missing}; allowed: {sorted(allowed)}")
