"""The tests that every search space must pass: subclass `SpaceContract` in a test file and make the space."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from search_spaces.candidate import Candidate, CandidateError
from search_spaces.layers import layers_of, num_macs, num_params
from search_spaces.space import Choices, RandomSuggest, ReplaySuggest, SearchSpace, V, replay

if TYPE_CHECKING:
    from torch import Tensor, nn

NUM_CANDIDATES = 4
"""Random candidates that the tests with torch look at, besides the references."""

BATCH_SIZE = 8
"""Images or sequences in a training step; small maps need several for batch norm's statistics."""

_CHILD = """
import json, random, sys
from search_spaces.candidate import BlockSpec
from search_spaces.registry import make_space
from search_spaces.space import RandomSuggest
name, input, head, seeds = json.load(sys.stdin)
space = make_space(name, BlockSpec.from_json(input), BlockSpec.from_json(head))
print(json.dumps([space.sample(RandomSuggest(random.Random(seed))).candidate_id for seed in seeds]))
"""


class SpaceContract:
    """A base class for pytest; the space must be in the registry, so that another process can make it.

    Example:
        class TestMySpace(SpaceContract):
            def make_space(self) -> SearchSpace:
                return make_space("my_space", input, head)
    """

    def make_space(self) -> SearchSpace:
        """The space under test; called anew wherever two instances must agree."""
        raise NotImplementedError

    def random_candidates(self, count: int = NUM_CANDIDATES) -> list[Candidate]:
        """Candidates of seeds 0, 1, ...; always the same ones."""
        space = self.make_space()
        return [space.sample(RandomSuggest(random.Random(seed))) for seed in range(count)]

    def all_candidates(self) -> list[Candidate]:
        """The references and a few random candidates."""
        space = self.make_space()
        return [replay(space, choices) for choices in space.references().values()] + self.random_candidates()

    def training_inputs(self, candidate: Candidate, batch_size: int = 1) -> tuple[Tensor, ...]:
        """What the network itself is called with: normal noise in the shapes of the first phase, `batch_size` for 1.

        Override it where a phase is not the network itself (decoders, several inputs).
        """
        import torch

        generator = torch.Generator().manual_seed(0)
        specs = self.make_space().phases(candidate)[0].inputs
        return tuple(torch.randn((batch_size, *spec.shape[1:]), generator=generator) for spec in specs)

    def expected_output_shape(self, candidate: Candidate, batch_size: int) -> tuple[int, ...]:
        """What the network returns; override it for heads other than classifiers."""
        return (batch_size, candidate.head.integer("classes"))

    def test_space_says_what_it_is(self) -> None:
        """Name, version and task are there, and candidates carry name and version."""
        space = self.make_space()
        assert space.name and space.version >= 1 and space.task_kind
        for candidate in self.random_candidates():
            assert (candidate.space, candidate.space_version) == (space.name, space.version)

    def test_candidates_survive_json_with_their_id(self) -> None:
        """Text and back gives an equal candidate of equal id."""
        for candidate in self.all_candidates():
            again = Candidate.from_json(json.loads(json.dumps(candidate.to_json())))
            assert again == candidate
            assert again.candidate_id == candidate.candidate_id

    def test_different_choices_give_different_ids(self) -> None:
        """Among random candidates, the same id means the same network."""
        by_id: dict[str, Candidate] = {}
        for candidate in self.random_candidates(100):
            assert by_id.setdefault(candidate.candidate_id, candidate) == candidate
        assert len(by_id) > 50

    def test_ids_are_stable_across_processes(self) -> None:
        """Two children with different hash seeds agree with this process about the ids of given seeds."""
        expected = [candidate.candidate_id for candidate in self.random_candidates()]
        some = self.random_candidates(1)[0]
        question = json.dumps([some.space, some.input.to_json(), some.head.to_json(), list(range(len(expected)))])
        for hash_seed in ("1", "2"):
            environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
            answer = subprocess.run(
                [sys.executable, "-c", _CHILD],
                input=question,
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            assert json.loads(answer.stdout) == expected

    def test_choices_of_a_candidate_make_it_again(self) -> None:
        """`choices_of` finds answers that lead to an equal candidate, and refuses one of another version."""
        space = self.make_space()
        for candidate in self.all_candidates():
            assert replay(self.make_space(), space.choices_of(candidate)) == candidate
            try:
                space.choices_of(replace(candidate, space_version=space.version + 1))
            except CandidateError:
                continue
            raise AssertionError(f"a candidate of another version of {space.name} was taken")

    def test_recorded_choices_replay_to_the_same_candidate(self) -> None:
        """What a random draw answered makes the same candidate in a fresh space; unused answers change nothing."""
        for seed in range(20):
            suggest = RandomSuggest(random.Random(seed))
            candidate = self.make_space().sample(suggest)
            assert replay(self.make_space(), suggest.choices) == candidate
            assert replay(self.make_space(), {**suggest.choices, "no.such.choice": 1}) == candidate

    def test_every_reference_replays(self) -> None:
        """References exist, their choices are possible, and none asks for what is not used."""
        references = self.make_space().references()
        assert references
        for choices in references.values():
            suggest = _Recorder(choices)
            self.make_space().sample(suggest)
            assert suggest.asked == set(choices)

    def test_encodings_have_one_length_and_are_equal_for_equal_candidates(self) -> None:
        """Surrogate models need a matrix, and one row for one network."""
        space = self.make_space()
        lengths = set()
        for candidate in self.random_candidates(20):
            vector = space.encode(candidate)
            assert vector == self.make_space().encode(Candidate.from_json(candidate.to_json()))
            assert all(isinstance(value, float) for value in vector)
            lengths.add(len(vector))
        assert len(lengths) == 1

    def test_different_candidates_have_different_encodings(self) -> None:
        """An encoding that forgets a choice would blind every surrogate model to it."""
        space = self.make_space()
        candidates = {candidate.candidate_id: candidate for candidate in self.random_candidates(50)}
        assert len({space.encode(candidate) for candidate in candidates.values()}) == len(candidates)

    def test_phases_are_static_and_named_once(self) -> None:
        """At least one phase, all with inputs, no name twice."""
        for candidate in self.all_candidates():
            phases = self.make_space().phases(candidate)
            names = [phase.name for phase in phases]
            assert names and len(set(names)) == len(names)
            assert all(phase.inputs for phase in phases)

    def test_networks_build_and_return_the_expected_shape(self) -> None:
        """Every candidate becomes a network that runs, for one sample and for a batch."""
        import torch

        for candidate in self.all_candidates():
            model = _model(candidate)
            for batch_size in (1, 3):
                with torch.no_grad():
                    output = model(*self.training_inputs(candidate, batch_size))
                assert tuple(output.shape) == self.expected_output_shape(candidate, batch_size)
                assert bool(torch.isfinite(output).all())

    def test_parameters_equal_what_torch_counts(self) -> None:
        """In total, and for each layer that names a torch module."""
        for candidate in self.all_candidates():
            model = _model(candidate)
            assert num_params(candidate) == _num_elements(model)
            for phase in self.make_space().phases(candidate):
                for layer in layers_of(candidate, phase.name):
                    if layer.num_params:
                        assert layer.num_params == _num_elements(model.get_submodule(layer.name)), layer.name

    def test_entry_points_take_what_their_phases_say(self) -> None:
        """Names aside: shapes and dtypes of the inputs, in order; and every phase runs on them."""
        import torch

        from search_spaces.build import entry_point

        for candidate in self.all_candidates():
            model = _model(candidate)
            for phase in self.make_space().phases(candidate):
                entry = entry_point(model, candidate, phase)
                seen = [(tuple(tensor.shape), str(tensor.dtype)) for tensor in entry.inputs]
                assert seen == [(spec.shape, f"torch.{spec.dtype}") for spec in phase.inputs], phase.name
                with torch.no_grad():
                    outputs = entry.module(*entry.inputs)
                assert all(bool(torch.isfinite(each).all()) for each in _as_tuple(outputs)), phase.name

    def test_macs_equal_what_torch_counts(self) -> None:
        """In each phase. Torch's own counter sees twice the MACs: a multiplication and an addition each."""
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        from search_spaces.build import entry_point

        for candidate in self.all_candidates():
            model = _model(candidate)
            for phase in self.make_space().phases(candidate):
                entry = entry_point(model, candidate, phase)
                with torch.no_grad(), FlopCounterMode(display=False) as counter:
                    entry.module(*entry.inputs)
                assert 2 * num_macs(candidate, phase.name) == counter.get_total_flops(), phase.name

    def test_the_first_phase_is_the_default_one_for_costs(self) -> None:
        """`num_macs(candidate)` and `num_macs(candidate, first phase)` are one number."""
        for candidate in self.all_candidates():
            first = self.make_space().phases(candidate)[0].name
            assert num_macs(candidate) == num_macs(candidate, first)

    def test_one_training_step_reaches_every_parameter(self) -> None:
        """No parameter is cut off: each gets a gradient that is finite and not all zero."""
        import torch

        for candidate in self.all_candidates():
            model = _model(candidate).train()
            output = model(*self.training_inputs(candidate, BATCH_SIZE))
            weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
            (output * weights).sum().backward()
            for name, parameter in model.named_parameters():
                assert parameter.grad is not None, name
                assert bool(torch.isfinite(parameter.grad).all()) and bool(parameter.grad.any()), name

    def test_a_network_exports_with_static_shapes_and_the_same_output(self) -> None:
        """`torch.export` takes each phase without guards, and the exported program computes the same."""
        import torch

        from search_spaces.build import entry_point

        candidate = self.random_candidates(1)[0]
        model = _model(candidate)
        for phase in self.make_space().phases(candidate):
            entry = entry_point(model, candidate, phase)
            program = torch.export.export(entry.module, entry.inputs)
            assert not program.range_constraints
            assert not [node for node in program.graph.nodes if "scaled_dot_product" in str(node.target)]
            with torch.no_grad():
                outputs = zip(
                    _as_tuple(program.module()(*entry.inputs)), _as_tuple(entry.module(*entry.inputs)), strict=True
                )
                for exported, wanted in outputs:
                    torch.testing.assert_close(exported, wanted, rtol=1e-5, atol=1e-5)


@dataclass(slots=True)
class _Recorder:
    """Replays choices and remembers which were asked for."""

    choices: Choices
    asked: set[str] = field(default_factory=set)

    def choose(self, name: str, options: Sequence[V]) -> V:
        self.asked.add(name)
        return ReplaySuggest(self.choices).choose(name, options)


def _model(candidate: Candidate) -> nn.Module:
    """The network in eval mode, weights from a fixed seed."""
    import torch

    from search_spaces.build import build_model

    torch.manual_seed(0)
    return build_model(candidate).eval()


def _num_elements(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _as_tuple(outputs: Any) -> tuple[Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)
