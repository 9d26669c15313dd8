"""Scores of untrained networks from one batch: synflow, jacobian covariance, NASWOT. Clues to quality, not quality.

Parameters and multiply-accumulates, the clues that cost nothing at all, are in every space's encoding already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nas.training.evaluate import BuildModel, build_from_space
from nas.training.kinds import kind_of
from nas.training.steps import derived_seed, reproducible
from nas.training.task import Task
from nas.training.task_kind import Inputs, call
from search_spaces.blocks.language_parts import Embedding
from search_spaces.candidate import Candidate

NUM_EXAMPLES = 32
MAX_TOKENS = 64
"""Of each sequence: attention over all of it would cost more than the score is worth."""

_EPSILON = 1e-5
"""Added to eigenvalues (Mellor et al. 2020, first version, section 4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroCostScore:
    """One score of one untrained network.

    Attributes:
        name: a key of `SCORES`.
        value: larger promises better; None where the score is not defined.
        reason: why it is not; None where it is.
    """

    name: str
    value: float | None
    reason: str | None = None


def zero_cost_scores(
    candidate: Candidate, task: Task, *, seed: int, num_threads: int = 1, build: BuildModel | None = None
) -> tuple[ZeroCostScore, ...]:
    """Every score of `SCORES`, in that order.

    Args:
        candidate: what is built, once a score, with the weights that a training of this seed begins with.
        task: its first train examples are the batch.
        seed: of the weights.
        num_threads: of torch.
        build: makes the network; None means the search spaces' own.
    """
    prepared = kind_of(task).prepare(task, task.train.inputs[:NUM_EXAMPLES])
    inputs = tuple(_shortened(each) for each in (prepared if isinstance(prepared, tuple) else (prepared,)))
    scores = []
    with reproducible(num_threads):
        for name, score in SCORES.items():
            torch.default_generator.manual_seed(derived_seed(seed, "weights"))
            found = score((build or build_from_space)(candidate), inputs)
            if isinstance(found, str):
                scores.append(ZeroCostScore(name=name, value=None, reason=found))
            elif not math.isfinite(found):
                scores.append(ZeroCostScore(name=name, value=None, reason=f"came to {found}"))
            else:
                scores.append(ZeroCostScore(name=name, value=found))
    return tuple(scores)


def _shortened(inputs: Tensor) -> Tensor:
    return inputs if inputs.is_floating_point() else inputs[:, :MAX_TOKENS]


def synflow(model: nn.Module, inputs: tuple[Tensor, ...]) -> float | str:
    """Log of how much all weights carry: the sum of |weight * gradient| for weights made positive and inputs of ones.

    Tanaka et al. 2020, equation 2. Batch norms pass through, as in Abdelfattah et al. 2021. RMS norms stay: without
    them the products of gated units grow beyond any number. Tokens have no ones: their vectors are set to ones.
    """
    # Without norms the numbers outgrow float32; networks of tokens keep theirs, and some make float32 constants.
    has_norms = any(isinstance(each, Embedding) for each in model.modules())
    dtype = torch.float32 if has_norms else torch.float64
    model = model.to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.abs_()
    with _hooks(model, _passed_through, nn.BatchNorm2d), _hooks(model, _ones, Embedding):
        _send_back(call(model, _as_arguments(tuple(_one_example(each, dtype) for each in inputs))))
    carried = [float((each.detach() * each.grad).abs().sum()) for each in model.parameters() if each.grad is not None]
    total = sum(carried)
    return math.log(total) if total > 0 else "no weight carries anything"


def jacobian_covariance(model: nn.Module, inputs: tuple[Tensor, ...]) -> float | str:
    """How differently the network's slope answers to different examples.

    Of the correlations between the examples' gradients of the summed outputs: minus the sum over eigenvalues v of
    log(v + k) + 1 / (v + k) (Mellor et al. 2020, first version, section 4). The gradient is by what enters: pixels,
    and the vectors of tokens.
    """
    vectors: list[Tensor] = []

    def leaf(module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        vectors.append(output.detach().requires_grad_())
        return vectors[-1]

    entering = tuple(each.clone().requires_grad_() if each.is_floating_point() else each for each in inputs)
    with _hooks(model.train(), leaf, Embedding):
        _send_back(call(model, _as_arguments(entering)))
    gradients = [each.grad.flatten(1) for each in (*entering, *vectors) if each.grad is not None]
    if not gradients:
        return "nothing that enters has a gradient"
    correlation = torch.corrcoef(torch.cat(gradients, dim=1).double())
    if not bool(torch.isfinite(correlation).all()):
        return "an example has no gradient"
    values = torch.linalg.eigvalsh(correlation).clamp(min=0.0) + _EPSILON
    return float(-(torch.log(values) + 1.0 / values).sum())


def naswot(model: nn.Module, inputs: tuple[Tensor, ...]) -> float | str:
    """How differently examples switch the ReLUs: log determinant of the numbers of units on which pairs agree.

    Mellor et al. 2021, equation 2. Networks that switch nothing off have no such code.
    """
    codes: list[Tensor] = []

    def remember(module: nn.Module, arguments: Any, output: Tensor) -> None:
        codes.append((output > 0).flatten(1))

    with torch.no_grad(), _hooks(model.train(), remember, nn.ReLU):
        call(model, _as_arguments(inputs))
    if not codes:
        return "no ReLU in the network"
    code = torch.cat(codes, dim=1).double()
    agreeing = code @ code.T + (1 - code) @ (1 - code).T
    return float(torch.linalg.slogdet(agreeing).logabsdet)


Score = Callable[[nn.Module, tuple[Tensor, ...]], float | str]

SCORES: dict[str, Score] = {"synflow": synflow, "jacobian_covariance": jacobian_covariance, "naswot": naswot}
"""Each takes an untrained network, which it may change, and a batch; text says why it is not defined."""


def _as_arguments(inputs: tuple[Tensor, ...]) -> Inputs:
    return inputs if len(inputs) > 1 else inputs[0]


def _send_back(outputs: Tensor) -> None:
    """The gradient of the summed outputs."""
    outputs.sum().backward()  # type: ignore[no-untyped-call]


def _one_example(inputs: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.ones_like(inputs[:1], dtype=dtype) if inputs.is_floating_point() else inputs[:1]


def _passed_through(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return arguments[0]


def _ones(module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
    return torch.ones_like(output)


@contextmanager
def _hooks(model: nn.Module, hook: Callable[..., Tensor | None], kind: type[nn.Module]) -> Iterator[None]:
    """Calls `hook` after every module of a kind; what it returns takes the place of the module's output."""
    handles = [module.register_forward_hook(hook) for module in model.modules() if isinstance(module, kind)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
