from __future__ import annotations

import json
from typing import Any

import pytest

from nas.compile.compile_worker import CompileRequest, plan
from nas.compile.memory import (
    BASE_BYTES,
    ONE_PIECE_BYTES,
    ModelTooLargeError,
    require_memory,
    require_one_piece,
    weights_bytes,
)
from nas.compile.onnx import export_onnx
from nas.compile.workers import WorkerFailure, WorkerPool
from search_spaces.candidate import Candidate
from search_spaces.registry import example_space
from search_spaces.space import replay


def lfm2_like(space: str) -> Candidate:
    made = example_space(space, {})
    return replay(made, made.references()["lfm2_like"])


SMALL, LARGE, LARGEST = (lfm2_like(f"hybrid_language{scale}") for scale in ("", "_350m", "_1b2"))


def test_a_network_that_fits_exactly_is_let_through_and_one_byte_less_is_not() -> None:
    needed = BASE_BYTES + 2 * weights_bytes(LARGE)
    require_memory(LARGE, 2.0, available_bytes=needed)
    with pytest.raises(ModelTooLargeError, match=r"1\.32 GB of weights need about 3\.7 GB of memory here, 3\.7 GB are"):
        require_memory(LARGE, 2.0, available_bytes=needed - 1)


def test_small_networks_are_not_refused_on_any_machine_that_runs_this() -> None:
    require_memory(SMALL, 4.0)


def test_one_file_holds_350_million_parameters_and_not_1200_million() -> None:
    assert weights_bytes(LARGE) < ONE_PIECE_BYTES < weights_bytes(LARGEST)
    require_one_piece(LARGE)
    with pytest.raises(ModelTooLargeError, match=r"4\.68 GB of weights; an ONNX file in one piece .* nas export"):
        require_one_piece(LARGEST)


def test_a_compile_worker_refuses_what_no_memory_holds_and_lives_on(compile_pool: WorkerPool[Any], target: str) -> None:
    space = example_space("hybrid_language_1b2", {"vocabulary": 10**9})
    huge = replay(space, space.references()["lfm2_like"])
    request = CompileRequest(
        candidate_json=huge.canonical_json(), phase="decode@4096", weights=None, seed=0, target=target
    )
    failure = compile_pool.run(plan, request, timeout_s=120.0)
    assert isinstance(failure, WorkerFailure)
    assert failure.kind == "raised"
    assert failure.reason.startswith("ModelTooLargeError: 8196.14 GB of weights need about 40981.8 GB of memory here")


def test_a_network_that_one_file_cannot_hold_is_refused_before_it_is_built(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    import search_spaces.build

    monkeypatch.setattr(search_spaces.build, "build_model", lambda candidate: pytest.fail("built it"))
    request = CompileRequest(
        candidate_json=json.dumps(LARGEST.to_json()), phase="decode@4096", weights=None, seed=0, target="any"
    )
    with pytest.raises(ModelTooLargeError, match="in one piece"):
        export_onnx(request, str(tmp_path))
