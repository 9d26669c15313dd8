"""From a torch model to a folded model and an exported program, with fixed inputs and answers."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from nas.gates.parity import RELATIVE_TOLERANCE
from search_spaces.candidate import Candidate
from search_spaces.space import Phase

if TYPE_CHECKING:
    import torch
    from torch import nn

Arrays = tuple[NDArray[Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A folded torch model with the answers that every compiled version must give.

    Attributes:
        model: the entry point, batch norm folded into convolutions; what all runtimes compile.
        inputs, outputs: fixed inputs, and the answers of the model before folding.
        disagreement: how this entry point contradicts the network's whole pass; None where it does not.
    """

    model: nn.Module
    inputs: Arrays
    outputs: Arrays
    disagreement: str | None = None


def make_reference(candidate: Candidate, phase: Phase, weights: Path | None, seed: int) -> Reference:
    """Builds the candidate's model in torch and records its answers on fixed inputs.

    Args:
        candidate: the network.
        phase: its entry point; the inputs have the shapes and dtypes of `phase.inputs`.
        weights: a checkpoint to load; None for random weights, which is all that latency needs.
        seed: of the random weights. Batch norm gets random statistics as well: with the initial
            ones (mean 0, variance 1) a mistake in folding would go unseen.
    """
    import torch

    from nas.training.checkpoint import load_state
    from search_spaces.build import build_model, disagreement, entry_point

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build_model(candidate)
        if weights is None:
            _randomise_statistics(model)
    if weights is not None:
        model.load_state_dict(load_state(weights))
    entry = entry_point(model.eval(), candidate, phase)
    seen = [(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for tensor in entry.inputs]
    assert seen == [(spec.shape, spec.dtype) for spec in phase.inputs], f"{phase.name}: {seen} for {phase.inputs}"
    with torch.no_grad():
        answer = entry.module(*entry.inputs)
    outputs = answer if isinstance(answer, tuple) else (answer,)
    return Reference(
        model=fold_batch_norm(entry.module),
        inputs=tuple(tensor.numpy().copy() for tensor in entry.inputs),
        outputs=tuple(output.numpy().copy() for output in outputs),
        disagreement=disagreement(model, candidate, phase, RELATIVE_TOLERANCE),
    )


def export_program(reference: Reference) -> torch.export.ExportedProgram:
    """The folded model as a torch.export program with static shapes."""
    import torch

    inputs = tuple(torch.from_numpy(array) for array in reference.inputs)
    with torch.no_grad():
        return torch.export.export(reference.model, inputs)


def fold_batch_norm(model: nn.Module) -> nn.Module:
    """Folds every batch norm into the convolution before it (Ioffe and Szegedy 2015, section 3.1).

    Exact in real arithmetic. A norm that follows no convolution of its own stays as it is, and so
    does one after a convolution that is called in several places. A network without batch norm is returned as
    it is: it need not be one that `torch.fx` can trace.
    """
    from torch import fx, nn
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    if not any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        return model
    graph_module = fx.symbolic_trace(copy.deepcopy(model).eval())
    modules = dict(graph_module.named_modules())
    calls = Counter(node.target for node in graph_module.graph.nodes if node.op == "call_module")
    for node in list(graph_module.graph.nodes):
        norm: nn.Module | None = _module_of(node, modules)
        before: Any = node.args[0] if node.args else None
        conv = _module_of(before, modules)
        if not isinstance(norm, nn.BatchNorm2d) or not isinstance(conv, nn.Conv2d):
            continue
        if len(before.users) == 1 and calls[before.target] == 1:
            name = str(before.target)
            modules[name] = fuse_conv_bn_eval(conv, norm)
            graph_module.set_submodule(name, modules[name])
            node.replace_all_uses_with(before)
            graph_module.graph.erase_node(node)
    graph_module.graph.lint()
    graph_module.recompile()
    return graph_module


def _module_of(node: object, modules: dict[str, nn.Module]) -> nn.Module | None:
    if getattr(node, "op", None) != "call_module":
        return None
    return modules.get(str(node.target))  # type: ignore[attr-defined]


def _randomise_statistics(model: nn.Module) -> None:
    import torch
    from torch import nn

    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                assert module.running_mean is not None
                assert module.running_var is not None
                module.running_mean.normal_(0.0, 0.1)
                module.running_var.uniform_(0.5, 1.5)
