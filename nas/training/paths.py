"""Ways to run the steps of a training: the slow one, the usual one, and others that must be shown to be equal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPath:
    """A way to run a training step.

    Attributes:
        prepare: network -> what is called in a step; it shares its weights with the network, which stays what is
            scored and saved.
        context: what loss and gradient are computed in.
    """

    prepare: Callable[[nn.Module], nn.Module] = lambda model: model
    context: Callable[[], AbstractContextManager[Any]] = nullcontext


def _channels_last(model: nn.Module) -> nn.Module:
    """Weights of convolutions with their channels innermost; tensors without four axes stay as they are."""
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


SLOW = TrainingPath()
"""Contiguous tensors, float32, one operation after the other: what every other path is compared with."""

USUAL = TrainingPath(prepare=_channels_last)
"""How a study trains that asks for nothing else. It takes a third (attention) to two thirds (convolutions alone) less
processor time than `SLOW` on CPUs, and only reorders memory; a test puts it through the gate on every change, so that
studies need not spend six trainings on asking again."""

FAST_PATHS: dict[str, TrainingPath] = {
    "channels_last": USUAL,
    "bfloat16": TrainingPath(prepare=_channels_last, context=lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    "compiled": TrainingPath(
        prepare=lambda model: torch.compile(_channels_last(model))  # type: ignore[arg-type,return-value]
    ),
}
"""By name, as `Recipe.fast_path` has it."""


def path_of(name: str | None) -> TrainingPath:
    """The path of that name; None is the usual one."""
    return USUAL if name is None else FAST_PATHS[name]
