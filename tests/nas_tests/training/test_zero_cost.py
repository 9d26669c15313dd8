from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from nas.config import load_config
from nas.training.data.sources import load_task
from nas.training.task import Task
from nas.training.zero_cost import SCORES, jacobian_covariance, naswot, synflow, zero_cost_scores
from search_spaces.candidate import Candidate
from search_spaces.registry import make_space
from search_spaces.space import replay


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.relu(self.first(x)))
        return y


def made() -> TwoLayers:
    torch.manual_seed(0)
    return TwoLayers()


def test_synflow_is_what_the_paper_says() -> None:
    model = made()
    passed = (model.second.weight.abs() @ model.first.weight.abs()).sum()  # ones in, absolute weights, summed outputs
    assert synflow(made(), (torch.randn(5, 3),)) == pytest.approx(math.log(2 * float(passed.detach())), rel=1e-6)


def test_naswot_counts_units_on_which_examples_agree() -> None:
    model, x = made(), torch.randn(3, 3)
    codes = (model.first(x) > 0).to(torch.int64)
    agreeing = torch.tensor([[float((one == other).sum()) for other in codes] for one in codes], dtype=torch.float64)
    assert naswot(made(), (x,)) == pytest.approx(float(torch.linalg.slogdet(agreeing).logabsdet))


def test_a_network_without_relus_has_no_naswot_and_says_why() -> None:
    assert naswot(nn.Linear(3, 2), (torch.randn(4, 3),)) == "no ReLU in the network"


def test_a_network_that_answers_all_examples_alike_has_the_lowest_jacobian_covariance() -> None:
    x = torch.randn(6, 3)
    linear = jacobian_covariance(nn.Linear(3, 2), (x,))
    varied = jacobian_covariance(nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 2)), (x,))
    assert isinstance(linear, float) and isinstance(varied, float)
    assert varied > linear


@pytest.mark.parametrize("examples", [torch.zeros(4, 3)])
def test_a_network_that_no_input_reaches_has_no_jacobian(examples: Tensor) -> None:
    class Deaf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor) -> Tensor:
            return x * 0.0 + self.weight

    assert jacobian_covariance(Deaf(), (examples,)) == "an example has no gradient"


@pytest.fixture(scope="module")
def vision() -> tuple[Task, Candidate]:
    return of_space("conv_attention", {})


def of_space(name: str, task_settings: dict[str, object]) -> tuple[Task, Candidate]:
    config = load_config(overrides={"search.space": name, **task_settings})
    task = load_task(config.task)
    space = make_space(name, task.input, task.head)
    return task, replay(space, next(iter(space.references().values())))


def test_every_score_of_a_vision_network_is_a_number_and_the_same_again(vision: tuple[Task, Candidate]) -> None:
    task, candidate = vision
    torch.manual_seed(3)
    before = torch.get_rng_state()
    scores = zero_cost_scores(candidate, task, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    assert [each.name for each in scores] == list(SCORES)
    assert all(each.value is not None and math.isfinite(each.value) for each in scores)
    assert zero_cost_scores(candidate, task, seed=0) == scores
    assert zero_cost_scores(candidate, task, seed=1) != scores


def test_a_language_network_has_the_scores_that_need_no_relu(tmp_path_factory: pytest.TempPathFactory) -> None:
    text = tmp_path_factory.mktemp("text") / "some.txt"
    text.write_text("\n".join(f"line {number} of a text that says {number * 7919 % 1000}" for number in range(4000)))
    task, _ = of_space("hybrid_language", {"task.name": "text", "task.path": str(text), "task.context": 64})
    space = make_space("hybrid_language", task.input, task.head)
    for choices in space.references().values():
        scores = {each.name: each for each in zero_cost_scores(replay(space, choices), task, seed=0)}
        assert scores["naswot"].value is None and scores["naswot"].reason == "no ReLU in the network"
        for name in ("synflow", "jacobian_covariance"):
            assert scores[name].value is not None, scores[name].reason
