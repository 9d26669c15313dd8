"""A real candidate through export, tuning, building, measuring: TVM, torch and ONNX Runtime, no fakes."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from nas.compile.compile_worker import LIBRARY_NAME, PARITY_NAME, BuiltFiles, CompileRequest
from nas.compile.onnx import export_onnx
from nas.compile.tvm import Compiled, CompileFailure, CompileLimits, TvmCompiler
from nas.gates.parity import RELATIVE_TOLERANCE
from profilers.artifact import Artifact, hash_file
from profilers.device import DeviceSpec, local_device
from profilers.errors import ProfileFailure
from profilers.local import LocalProfiler
from profilers.measurement import Measurement, MeasureProtocol
from search_spaces.candidate import BlockSpec, Candidate
from search_spaces.registry import make_space
from search_spaces.space import replay

QUICK = MeasureProtocol(
    num_processes=1, blocks_per_process=2, max_blocks_per_process=2, block_ms=2.0, warmup_max_s=0.3, timeout_s=60.0
)
"""Enough to compare outputs; its latency is worth nothing."""

LIMITS = CompileLimits(tuning_trials=1, timeout_s=300.0, trial_timeout_s=60.0, num_workers=1)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NAS_CACHE_DIR", str(folder))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("TVM_NUM_THREADS", "1")  # put back what a compiler sets
        yield folder


@pytest.fixture(scope="module")
def device(cache: Path) -> DeviceSpec:
    return local_device(1)


@pytest.fixture(scope="module")
def candidate() -> Candidate:
    """The space's network with the fewest operations, for images of 8x8 pixels."""
    image = BlockSpec.of("image", channels=1, height=8, width=8)
    space = make_space("conv_attention", image, BlockSpec.of("classifier", classes=10))
    return replay(space, space.references()["smallest"])


@pytest.fixture(scope="module")
def compiler(device: DeviceSpec, cache: Path) -> Iterator[TvmCompiler]:
    before = children()
    compiler = TvmCompiler(device, LIMITS, cache)
    yield compiler
    compiler.close()
    assert children() <= before, "processes that outlive the compiler"


@pytest.fixture(scope="module")
def progress() -> list[tuple[str, int, int]]:
    """What the first compilation reported."""
    return []


@pytest.fixture(scope="module")
def first(compiler: TvmCompiler, candidate: Candidate, progress: list[tuple[str, int, int]]) -> Compiled:
    return compiled(compiler, candidate, on_progress=lambda *report: progress.append(report))


@pytest.fixture(scope="module")
def weights(cache: Path, candidate: Candidate) -> Path:
    import torch

    from nas.training.checkpoint import save_state
    from search_spaces.build import build_model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        save_state(cache / "weights.pt", build_model(candidate).state_dict())
    return cache / "weights.pt"


@pytest.fixture
def profiler(device: DeviceSpec, tmp_path: Path) -> LocalProfiler:
    return LocalProfiler(parity_tolerance=RELATIVE_TOLERANCE, quiet_timeout_s=0.0, folder=tmp_path / "state")


def compiled(compiler: TvmCompiler, candidate: Candidate, **options: object) -> Compiled:
    result = compiler.compile(candidate, "infer", **options)  # type: ignore[arg-type]
    assert isinstance(result, Compiled), result
    return result


def children() -> set[int]:
    """Processes below this one; multiprocessing's resource tracker, which ends with it, left out."""
    found = psutil.Process().children(recursive=True)
    return {child.pid for child in found if not any("resource_tracker" in part for part in child.cmdline())}


def assert_outputs_right(profiler: LocalProfiler, artifact: Artifact) -> None:
    """Whatever the timing was worth (`rejected_because`), outputs were compared before it."""
    seen = profiler.measure(artifact, QUICK)
    assert isinstance(seen, Measurement) or seen.kind == "rejected", seen
    if isinstance(seen, Measurement):
        with np.load(artifact.path(PARITY_NAME)) as arrays:
            largest = float(np.abs(arrays["output_0"]).max())
        assert largest > 0.01, "outputs that are all but zero would agree with anything"
        assert seen.parity_max_abs <= RELATIVE_TOLERANCE * max(1.0, largest)


def with_parity_of(artifact: Artifact, other: Artifact, folder: Path) -> Artifact:
    """`artifact`'s code with the answers of `other`, hashes in order."""
    shutil.copytree(artifact.folder, folder)
    shutil.copyfile(other.path(PARITY_NAME), folder / PARITY_NAME)
    files = tuple((name, hash_file(folder / name)) for name, _ in artifact.files)
    mixed = dataclasses.replace(artifact, folder=folder, files=files)
    mixed.save()
    return mixed


def assert_outputs_differ(profiler: LocalProfiler, artifact: Artifact) -> None:
    seen = profiler.measure(artifact, QUICK)
    assert isinstance(seen, ProfileFailure), "a latency for wrong outputs"
    assert seen.kind == "outputs_differ"


def test_every_kernel_is_tuned_and_the_artifact_is_whole(
    first: Compiled, candidate: Candidate, device: DeviceSpec, progress: list[tuple[str, int, int]]
) -> None:
    artifact = first.artifact
    artifact.verify()
    assert artifact.tuned_coverage == 1.0
    assert (artifact.candidate_id, artifact.phase, artifact.runtime) == (candidate.candidate_id, "infer", "tvm")
    assert (artifact.target, artifact.num_threads) == (device.target, 1)
    assert [spec.shape for spec in artifact.inputs] == [(1, 1, 8, 8)]
    assert [spec.shape for spec in artifact.outputs] == [(1, 10)]
    assert artifact.model_bytes == artifact.path(LIBRARY_NAME).stat().st_size
    assert first.num_known == 0
    assert first.tune_s > 0
    assert first.compile_s > 0
    assert progress == [
        ("compile", 0, 1), *(("tune", done, first.num_kernels) for done in range(first.num_kernels + 1)),
    ]  # fmt: skip


def test_tuned_code_gives_torchs_answers(first: Compiled, profiler: LocalProfiler) -> None:
    assert_outputs_right(profiler, first.artifact)


def test_the_second_time_comes_from_the_cache_without_a_process(
    first: Compiled, candidate: Candidate, device: DeviceSpec, cache: Path
) -> None:
    again = TvmCompiler(device, LIMITS, cache)  # as the next study on this machine
    before = children()
    second = compiled(again, candidate)
    assert children() == before
    again.close()
    assert second.artifact.digest == first.artifact.digest
    assert (second.num_known, second.num_kernels) == (first.num_kernels, first.num_kernels)
    assert second.tune_s == 0


def test_a_damaged_file_in_the_cache_is_noticed_and_built_again(
    first: Compiled, compiler: TvmCompiler, candidate: Candidate
) -> None:
    damaged = first.artifact.path(LIBRARY_NAME)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(content)
    again = compiled(compiler, candidate)
    assert again.artifact.folder == first.artifact.folder
    again.artifact.verify()
    assert bytes(content) != damaged.read_bytes()
    assert again.num_known == first.num_kernels


def test_a_compilation_out_of_time_is_a_failure_and_the_next_one_works(
    first: Compiled,
    compiler: TvmCompiler,
    candidate: Candidate,
    profiler: LocalProfiler,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    before = children()
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "_limits", dataclasses.replace(LIMITS, timeout_s=0.05))
        failure = compiler.compile(candidate, "infer", seed=1)
    assert isinstance(failure, CompileFailure)
    assert failure.reason == "export and lowering: no result within 0.05 s; the process was killed"
    assert not list(first.artifact.folder.parent.glob(".building-*"))
    assert len(before - children()) == 1, "the worker that was out of time, and no other"

    other = compiled(compiler, candidate, seed=1)
    assert other.num_known == first.num_kernels, "weights do not make a kernel another one"
    assert other.artifact.digest != first.artifact.digest
    assert other.artifact.tuned_coverage == 1.0
    assert_outputs_differ(profiler, with_parity_of(other.artifact, first.artifact, tmp_path / "mixed"))


def test_one_changed_weight_in_the_same_file_makes_another_artifact_whose_outputs_differ(
    first: Compiled,
    compiler: TvmCompiler,
    candidate: Candidate,
    weights: Path,
    profiler: LocalProfiler,
    tmp_path: Path,
) -> None:
    from nas.training.checkpoint import load_state, save_state

    before = compiled(compiler, candidate, weights=weights)
    assert_outputs_right(profiler, before.artifact)
    state = load_state(weights)
    name = next(name for name, tensor in state.items() if tensor.ndim == 4)
    state[name][0, 0, 0, 0] += 0.5
    save_state(weights, state)
    after = compiled(compiler, candidate, weights=weights)
    assert after.artifact.digest != before.artifact.digest
    assert_outputs_right(profiler, after.artifact)
    assert_outputs_differ(profiler, with_parity_of(after.artifact, before.artifact, tmp_path / "mixed"))


def test_the_onnx_export_gives_torchs_answers_on_another_runtime(
    first: Compiled,
    compiler: TvmCompiler,
    candidate: Candidate,
    profiler: LocalProfiler,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "onnx"
    folder.mkdir()
    request = CompileRequest(
        candidate_json=candidate.canonical_json(), phase="infer", weights=None, seed=0, target=first.artifact.target
    )
    built = compiler.run(export_onnx, request, str(folder))
    assert isinstance(built, BuiltFiles), built
    artifact = dataclasses.replace(
        first.artifact,
        folder=folder,
        runtime="onnxruntime",
        target="any",
        files=tuple((name, hash_file(folder / name)) for name in built.names),
        tuned_coverage=None,
    )
    artifact.save()
    assert_outputs_right(profiler, artifact)
    with np.load(artifact.path(PARITY_NAME)) as mine, np.load(first.artifact.path(PARITY_NAME)) as tvms:
        np.testing.assert_array_equal(mine["input_0"], tvms["input_0"])
        np.testing.assert_array_equal(mine["output_0"], tvms["output_0"])
