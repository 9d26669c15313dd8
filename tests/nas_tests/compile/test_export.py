from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn

from nas.compile.export import Reference, export_program, fold_batch_norm, make_reference
from nas.gates.parity import RELATIVE_TOLERANCE
from nas.training.checkpoint import save_state
from search_spaces.build import build_model
from search_spaces.candidate import Candidate, TensorSpec
from search_spaces.space import Phase
from tests.nas_tests.compile import jobs
from tests.nas_tests.compile.candidates import ATTENTION, CONVNEXT, DEEP, RESIDUAL, SHALLOW, make_candidate
from tests.nas_tests.compile.conftest import InWorker

INFER = Phase(name="infer", inputs=(TensorSpec(name="image", shape=(1, 1, 8, 8)),))


def reference_of(candidate: Candidate = SHALLOW, seed: int = 0, weights: Path | None = None) -> Reference:
    return make_reference(candidate, INFER, weights, seed)


def randomise(model: nn.Module) -> nn.Module:
    """Weights, statistics and affine pairs that no initialisation gives."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor.is_floating_point():
                tensor.normal_(0.0, 0.3, generator=generator)
                if name.endswith("running_var"):
                    tensor.abs_().add_(0.1)
    return model.eval()


def norms(model: nn.Module) -> int:
    return sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())


def assert_equal_within_rounding(one: nn.Module, other: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        a, b = one(x), other(x)
    assert float(b.abs().max()) > 0.01, "outputs that are all but zero would agree with anything"
    assert float((a - b).abs().max()) <= RELATIVE_TOLERANCE * max(1.0, float(b.abs().max()))


@pytest.mark.parametrize("candidate", [SHALLOW, DEEP, make_candidate(CONVNEXT, RESIDUAL, ATTENTION)])
def test_a_folded_network_has_no_norms_and_the_same_answers(candidate: Candidate) -> None:
    model = randomise(build_model(candidate))
    folded = fold_batch_norm(model)
    assert norms(model) > 0
    assert "BatchNorm2d" not in calls(folded)
    assert_equal_within_rounding(folded, model, torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(1)))


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(8, 8, 3, padding=1, bias=True),
        nn.Conv2d(8, 8, 3, padding=1, bias=False),
        nn.Conv2d(8, 8, 3, stride=2, groups=8),
        nn.Conv2d(8, 8, 1, groups=2),
    ],
)
def test_every_kind_of_convolution_folds(conv: nn.Conv2d) -> None:
    model = randomise(nn.Sequential(copy.deepcopy(conv), nn.BatchNorm2d(8, eps=1e-2), nn.ReLU()))
    folded = fold_batch_norm(model)
    assert calls(folded) == ["Conv2d", "ReLU"]
    assert_equal_within_rounding(folded, model, torch.randn(2, 8, 7, 7, generator=torch.Generator().manual_seed(1)))


def test_folding_leaves_the_model_itself_as_it_was() -> None:
    model = randomise(nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    fold_batch_norm(model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert norms(model) == 1


class UsedTwice(nn.Module):
    """The norm's input is needed without the norm as well."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return torch.add(y, self.norm(y))


class CalledTwice(nn.Module):
    """One convolution in two places, each with a norm of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.first, self.second = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.conv(self.first(self.conv(x))))
        return y


@pytest.mark.parametrize(
    ("model", "kept"),
    [
        (nn.Sequential(nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1)), ["BatchNorm2d", "Conv2d"]),
        (nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU(), nn.BatchNorm2d(4)), ["Conv2d", "ReLU", "BatchNorm2d"]),
        (UsedTwice(), ["Conv2d", "BatchNorm2d"]),
        (CalledTwice(), ["Conv2d", "BatchNorm2d", "Conv2d", "BatchNorm2d"]),
    ],
)
def test_a_norm_without_a_convolution_of_its_own_stays(model: nn.Module, kept: list[str]) -> None:
    model = randomise(model)
    folded = fold_batch_norm(model)
    assert calls(folded) == kept
    assert_equal_within_rounding(folded, model, torch.randn(2, 4, 5, 5, generator=torch.Generator().manual_seed(1)))


def calls(model: fx.GraphModule) -> list[str]:
    """Kinds of the modules that the graph calls, in order."""
    nodes = [node for node in model.graph.nodes if node.op == "call_module"]
    return [type(model.get_submodule(str(node.target))).__name__ for node in nodes]


def test_random_weights_come_with_random_statistics() -> None:
    folded = reference_of().model
    biases = [module.bias for module in folded.modules() if isinstance(module, nn.Conv2d)]
    assert biases
    # With mean 0 and variance 1 the folded biases would all be 0 here.
    assert all(bias is not None and float(bias.detach().abs().max()) > 1e-3 for bias in biases)


def test_the_answers_are_those_of_the_model_before_folding(tmp_path: Path) -> None:
    model = randomise(build_model(SHALLOW))
    save_state(tmp_path / "weights.pt", model.state_dict())
    reference = reference_of(weights=tmp_path / "weights.pt")
    with torch.no_grad():
        expected = model(torch.from_numpy(reference.inputs[0])).numpy()
    np.testing.assert_array_equal(reference.outputs[0], expected)
    assert_equal_within_rounding(reference.model, model, torch.from_numpy(reference.inputs[0]))


def test_a_seed_gives_the_same_weights_and_another_seed_others() -> None:
    one, same, other = reference_of(seed=1), reference_of(seed=1), reference_of(seed=2)
    np.testing.assert_array_equal(one.outputs[0], same.outputs[0])
    assert np.abs(one.outputs[0] - other.outputs[0]).max() > 0.01
    np.testing.assert_array_equal(one.inputs[0], other.inputs[0])


def test_making_a_reference_leaves_torchs_generator_alone(tmp_path: Path) -> None:
    save_state(tmp_path / "weights.pt", build_model(SHALLOW).state_dict())
    for weights in (None, tmp_path / "weights.pt"):
        before = torch.get_rng_state()
        reference_of(weights=weights)
        assert torch.equal(torch.get_rng_state(), before)


def test_inputs_and_weights_are_the_same_in_every_process(in_compile_worker: InWorker) -> None:
    reference = reference_of(seed=5)
    here = jobs.digest_of([*reference.inputs, *jobs.weights_of(reference.model)])
    assert in_compile_worker(jobs.digest_of_reference, SHALLOW.canonical_json(), INFER, 5) == here


@pytest.mark.filterwarnings("ignore")  # torch.export deprecates its own internals
def test_the_exported_program_gives_the_folded_models_answers() -> None:
    reference = reference_of()
    program = export_program(reference).module()
    assert_equal_within_rounding(program, reference.model, torch.from_numpy(reference.inputs[0]))
