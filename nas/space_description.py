"""What a search space is, in numbers: its size, and what its references cost in every phase."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nas.errors import NasError
from profilers.roofline import Bound, DevicePeaks
from search_spaces.candidate import BlockSpec, Candidate
from search_spaces.kernels import CountedSpace
from search_spaces.layers import num_params
from search_spaces.phase_cost import PhaseCost, phase_cost
from search_spaces.registry import EXAMPLES, example_space
from search_spaces.space import SearchSpace, replay


class DescriptionError(NasError):
    """A reference that a space has not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedFloor:
    """The least time that one call of a phase can take on a device by its roofline: a prediction, not a measurement.

    Attributes:
        latency_ms: the larger of operations at the peak rate, and bytes at the bandwidth of the memory that holds
            the weights.
        bound: which of the two.
    """

    latency_ms: float
    bound: Bound


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceDescription:
    """A reference network of a space.

    Attributes:
        name, candidate: which.
        num_params: parameters.
        phases: costs of all its phases, the most important first.
    """

    name: str
    candidate: Candidate
    num_params: int
    phases: tuple[PhaseCost, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceDescription:
    """A space for given data.

    Attributes:
        name, version, task_kind: see `SearchSpace`.
        input, head: of the data.
        num_candidates, num_heavy_kernels: None where the space cannot count itself.
        references: its named networks.
    """

    name: str
    version: int
    task_kind: str
    input: BlockSpec
    head: BlockSpec
    num_candidates: int | None
    num_heavy_kernels: int | None
    references: tuple[ReferenceDescription, ...]


def describe(name: str, sizes: Mapping[str, int]) -> SpaceDescription:
    """The space `name` for its example data, with those of `sizes` that the data has.

    Raises:
        CandidateError: an unknown space, or sizes that it cannot serve.
    """
    space = example_space(name, sizes)
    references = tuple(_describe_reference(space, reference) for reference in space.references())
    counted = space if isinstance(space, CountedSpace) else None
    return SpaceDescription(
        name=name,
        version=space.version,
        task_kind=space.task_kind,
        input=references[0].candidate.input,
        head=references[0].candidate.head,
        num_candidates=None if counted is None else counted.num_candidates(),
        num_heavy_kernels=None if counted is None else len(counted.kernels()),
        references=references,
    )


def _describe_reference(space: SearchSpace, name: str) -> ReferenceDescription:
    candidate = replay(space, space.references()[name])
    return ReferenceDescription(
        name=name,
        candidate=candidate,
        num_params=num_params(candidate),
        phases=tuple(phase_cost(candidate, phase.name) for phase in space.phases(candidate)),
    )


def reference_candidate(space: str, reference: str, sizes: Mapping[str, int]) -> Candidate:
    """A space's reference by name, for its example data.

    Raises:
        DescriptionError: the space has no such reference; those it has are listed.
        CandidateError: an unknown space, or sizes that it cannot serve.
    """
    made = example_space(space, sizes)
    known = made.references()
    if reference not in known:
        raise DescriptionError(f"space {space!r} has no reference {reference!r}; it has {', '.join(known)}")
    return replay(made, known[reference])


def sizes_of(names: Iterable[str]) -> set[str]:
    """Every size that the data of one of these spaces has.

    >>> sorted(sizes_of(["conv_attention", "hybrid_language"]))
    ['channels', 'classes', 'context', 'height', 'vocabulary', 'width']
    """
    return {size for name in names if name in EXAMPLES for size in EXAMPLES[name].sizes}


def predicted_floor(cost: PhaseCost, peaks: DevicePeaks) -> PredictedFloor:
    """The floor of one call on a device with these peaks.

    >>> cost = PhaseCost(phase="decode@8", num_macs=10, state_bytes=None, weight_bytes=2000, moved_bytes=3000)
    >>> predicted_floor(cost, DevicePeaks(flops_per_s=1e6, bandwidths=((1024, 1e9), (4096, 1e6))))
    PredictedFloor(latency_ms=3.0, bound='bytes')
    """
    seconds, bound = peaks.floor_s(cost.num_operations, cost.moved_bytes, cost.weight_bytes)
    return PredictedFloor(latency_ms=seconds * 1e3, bound=bound)
