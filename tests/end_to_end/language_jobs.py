"""What runs beside TVM and torch in a compile worker: a compiled decode step, driven token by token."""

from __future__ import annotations

import json
from typing import Any


def decode_compiled(candidate_json: str, library: str, context: int, count: int, fault: str) -> dict[str, Any]:
    """Decodes `count` tokens with the compiled step after torch's prefill, beside torch's whole pass.

    Args:
        candidate_json: the network; weights from seed 0, as the compiler makes them.
        library: `model.so` of `decode@context`.
        context: slots of the state.
        count: tokens.
        fault: `none`, `late_position` or `shifted_cache`, planted into what the step is given.
    """
    import torch
    import tvm
    from tvm import relax

    from search_spaces.blocks.language_model import Decoder
    from search_spaces.build import build_model
    from search_spaces.candidate import Candidate
    from search_spaces.language_entry import fixed_tokens, prefilled_state

    candidate = Candidate.from_json(json.loads(candidate_json))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: Any = build_model(candidate).eval()
    machine = relax.VirtualMachine(tvm.runtime.load_module(library), tvm.cpu())

    def step(token: torch.Tensor, position: torch.Tensor, *state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if fault == "late_position":
            position = position + 1
        if fault == "shifted_cache":
            # Only what has one row a token is a cache: three axes, and not square.
            state = tuple(s.roll(1, 1) if s.dim() == 3 and s.shape[1] != s.shape[2] else s for s in state)
        tensors = [tvm.runtime.tensor(each.contiguous().numpy()) for each in (token, position, *state)]
        return tuple(torch.from_numpy(each.numpy().copy()) for each in machine["main"](*tensors))

    tokens = fixed_tokens(candidate, context)
    start = context - count
    with torch.no_grad():
        whole = model(tokens[None].long())[0, start:]
        x_btc = model.embed(tokens[None, :start])
    decoder = Decoder(step, prefilled_state(model, candidate, x_btc, context), start)
    steps = torch.stack([decoder.feed(int(token)) for token in tokens[start:]])
    return {
        "relative_error": float((steps - whole).abs().max() / whole.abs().max()),
        "same_tokens": bool((steps.argmax(-1) == whole.argmax(-1)).all()),
    }


def plan_with_late_positions(candidate_json: str, phase: str) -> Any:
    """What a compile worker plans for a network whose decode is off by one position."""
    from nas.compile.compile_worker import CompileRequest, plan
    from profilers.device import local_device
    from search_spaces.blocks.language_model import LanguageModel

    real = LanguageModel.decode
    LanguageModel.decode = lambda self, token, position, *states: real(self, token, position + 1, *states)  # type: ignore[method-assign]
    try:
        return plan(
            CompileRequest(
                candidate_json=candidate_json, phase=phase, weights=None, seed=1, target=local_device(1).target
            )
        )
    finally:
        LanguageModel.decode = real  # type: ignore[method-assign]
