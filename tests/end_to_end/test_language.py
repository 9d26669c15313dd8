"""A language network of every kind of mixer: both phases in TVM and ONNX Runtime answer as torch does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nas.bench.contenders import export_for_onnxruntime
from nas.compile.tvm import Compiled, TvmCompiler
from nas.compile.workers import WorkerFailure
from nas.gates.parity import RELATIVE_TOLERANCE
from profilers.artifact import Artifact
from profilers.local import LocalProfiler
from profilers.measurement import Measurement, MeasureProtocol
from search_spaces.candidate import BlockSpec, Candidate
from search_spaces.registry import make_space
from search_spaces.space import replay
from tests.end_to_end import language_jobs

CONTEXT = 80
"""Longer than the window and the chunk of linear attention (64 both), and no multiple of them."""

MIXERS = ("conv_k5", "attention_q4_kv1", "window64_q4_kv1", "linear_h4")
QUICK = MeasureProtocol(
    num_processes=1, blocks_per_process=2, max_blocks_per_process=2, block_ms=2.0, warmup_max_s=0.3, timeout_s=60.0
)
"""Enough to compare outputs; its latency is worth nothing."""


@pytest.fixture(scope="module")
def candidate() -> Candidate:
    text = BlockSpec.of("text", context=CONTEXT, vocabulary=50)
    space = make_space("hybrid_language", text, BlockSpec.of("language_model", vocabulary=50))
    choices: dict[str, int | str] = {"width": 128, "depth": len(MIXERS)}
    for layer, mixer in enumerate(MIXERS):
        choices |= {f"layer{layer}.mixer": mixer, f"layer{layer}.expansion": 1}
    return replay(space, choices)


@pytest.fixture(scope="module")
def decode(untuned_compiler: TvmCompiler, candidate: Candidate) -> Artifact:
    return compiled(untuned_compiler, candidate, f"decode@{CONTEXT}")


def compiled(untuned_compiler: TvmCompiler, candidate: Candidate, phase: str) -> Artifact:
    result = untuned_compiler.compile(candidate, phase)
    assert isinstance(result, Compiled), result
    return result.artifact


def assert_outputs_right(artifact: Artifact, folder: Path) -> None:
    profiler = LocalProfiler(parity_tolerance=RELATIVE_TOLERANCE, quiet_timeout_s=0.0, folder=folder / "state")
    seen = profiler.measure(artifact, QUICK)
    if not isinstance(seen, Measurement):
        assert seen.kind == "rejected", seen  # compared before it was timed
        return
    assert 0.0 <= seen.parity_max_abs < 1e-3


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_both_runtimes_answer_as_torch_does(
    phase: str, untuned_compiler: TvmCompiler, candidate: Candidate, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    assert_outputs_right(compiled(untuned_compiler, candidate, f"{phase}@{CONTEXT}"), tmp_path)
    exported = export_for_onnxruntime(untuned_compiler, candidate, f"{phase}@{CONTEXT}", 1, tmp_path / "onnx")
    assert_outputs_right(exported, tmp_path)


def test_decode_takes_its_token_position_and_states_as_they_are_named(decode: Artifact) -> None:
    shapes = {spec.name: (spec.shape, spec.dtype) for spec in decode.inputs}
    assert shapes["token"] == shapes["position"] == ((1,), "int32")
    assert shapes["window_1"] == ((4, 128), "float32")
    assert shapes["keys_3"] == ((1, 32, CONTEXT), "float32")
    assert shapes["values_3"] == ((1, CONTEXT, 32), "float32")
    assert shapes["keys_5"] == ((1, 32, 64), "float32")
    assert shapes["memory_7"] == ((4, 32, 32), "float32")


def chain(untuned_compiler: TvmCompiler, candidate: Candidate, decode: Artifact, fault: str) -> dict[str, Any]:
    library = str(decode.path("model.so"))
    answer = untuned_compiler.run(
        language_jobs.decode_compiled, candidate.canonical_json(), library, CONTEXT, 20, fault
    )
    assert not isinstance(answer, WorkerFailure), f"{answer.reason}\n{answer.traceback}"
    return dict(answer)


def test_compiled_decoding_token_by_token_agrees_with_torchs_whole_pass(
    untuned_compiler: TvmCompiler, candidate: Candidate, decode: Artifact
) -> None:
    seen = chain(untuned_compiler, candidate, decode, "none")
    assert seen["relative_error"] < RELATIVE_TOLERANCE
    assert seen["same_tokens"]


@pytest.mark.parametrize("fault", ["late_position", "shifted_cache"])
def test_a_wrong_position_or_a_shifted_cache_is_seen(
    fault: str, untuned_compiler: TvmCompiler, candidate: Candidate, decode: Artifact
) -> None:
    assert chain(untuned_compiler, candidate, decode, fault)["relative_error"] > 10 * RELATIVE_TOLERANCE


def test_a_network_that_contradicts_itself_is_not_built(untuned_compiler: TvmCompiler, candidate: Candidate) -> None:
    broken = untuned_compiler.run(
        language_jobs.plan_with_late_positions, candidate.canonical_json(), f"decode@{CONTEXT}"
    )
    assert not isinstance(broken, WorkerFailure), f"{broken.reason}\n{broken.traceback}"
    assert "contradicts one pass" in broken.disagreement
