from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nas.compile import compile_worker, kernel_tuner
from nas.compile.compile_worker import CompileRequest
from nas.compile.kernel_tuner import TuningJob, TuningResult
from nas.compile.kernels import KernelTask
from nas.gates.parity import RELATIVE_TOLERANCE
from search_spaces.candidate import BlockSpec
from tests.nas_tests.compile import jobs
from tests.nas_tests.compile.candidates import CONVNEXT, DEEP, RESIDUAL, SHALLOW, make_candidate
from tests.nas_tests.compile.conftest import InWorker

MakeRequest = Callable[..., CompileRequest]

CONVOLUTIONS = make_candidate(CONVNEXT, BlockSpec.of("downsample", width=64), RESIDUAL)


def test_a_kernel_is_the_same_whatever_network_is_around_it(
    in_compile_worker: InWorker, make_request: MakeRequest
) -> None:
    shallow = in_compile_worker(jobs.kernel_facts, make_request(SHALLOW))
    deep = in_compile_worker(jobs.kernel_facts, make_request(DEEP))
    blocks_in = {key: (name, blocks) for key, name, blocks in deep}
    assert len(shallow) > 10
    assert len(deep) > len(shallow)
    for key, name, blocks in shallow:
        assert key in blocks_in, f"{name} has another key in the deeper network"
        assert blocks_in[key][1] == blocks


def test_no_block_is_named_after_a_variable(in_compile_worker: InWorker, make_request: MakeRequest) -> None:
    names = {name for _, _, blocks in in_compile_worker(jobs.kernel_facts, make_request(DEEP)) for name in blocks}
    assert "x_red" in names
    assert not [name for name in names if name.startswith("lv")]


def test_blocks_of_one_kernel_have_different_names(in_compile_worker: InWorker, make_request: MakeRequest) -> None:
    for _, name, blocks in in_compile_worker(jobs.kernel_facts, make_request(DEEP)):
        assert len(set(blocks)) == len(blocks), f"{name}: {blocks}"


def test_convolutions_stay_channels_last_from_the_image_on(
    in_compile_worker: InWorker, make_request: MakeRequest
) -> None:
    facts = in_compile_worker(jobs.kernel_facts, make_request(CONVOLUTIONS))
    transposing = [name for _, name, blocks in facts if any(block.startswith("T_transpose") for block in blocks)]
    assert transposing == ["transpose1"], "the image's transpose, and none around an activation"
    convolving = [name for _, name, blocks in facts if any(block.endswith("conv2d_nhwc") for block in blocks)]
    assert len(convolving) == 8
    # The epilogues are inside: bias everywhere, activation or residual where there is one.
    assert [name for name in convolving if "_add" not in name] == []
    assert sum("relu" in name for name in convolving) == 5


def test_a_clip_between_convolutions_brings_no_transposes(in_compile_worker: InWorker) -> None:
    assert in_compile_worker(jobs.transposes_around_clipped_convolutions) == 2, "of the input and of the output"


def test_nothing_is_computed_from_constants_at_inference(
    in_compile_worker: InWorker, make_request: MakeRequest
) -> None:
    assert in_compile_worker(jobs.calls_of_constants_alone, make_request(DEEP)) == []


X = np.array([[-7.0, -0.5, 0.0], [0.5, 2.0, 9.0]], dtype=np.float32)


@pytest.mark.parametrize(
    ("expression", "operators", "expected"),
    [
        ("relax.op.clip(x, 0, inf)", ["relax.maximum"], np.maximum(X, 0)),
        ("relax.op.clip(x, -inf, 1)", ["relax.minimum"], np.minimum(X, 1)),
        ("relax.op.clip(x, -1, 6)", ["relax.maximum", "relax.minimum"], np.clip(X, -1, 6)),
        ("relax.op.nn.relu(relax.op.clip(x, -inf, inf))", ["relax.nn.relu"], np.maximum(X, 0)),
        ("relax.op.divide(x, constant(8.0))", ["relax.multiply"], X / 8),
        ("relax.op.divide(x, constant([1.0, 2.0, 4.0]))", ["relax.divide"], X / np.array([1, 2, 4], dtype=np.float32)),
        ("relax.op.divide(constant(8.0), relax.op.add(x, constant(1.0)))", ["relax.add", "relax.divide"], 8 / (X + 1)),
        (
            "relax.op.add(x, relax.op.permute_dims(constant([[1, 2], [3, 4], [5, 6]]), [1, 0]))",
            ["relax.add"],
            X + np.array([[1, 3, 5], [2, 4, 6]], dtype=np.float32),
        ),
        (
            "relax.op.add(x, relax.op.permute_dims(constant([[1, 2], [3, 4], [5, 6]])))",
            ["relax.add"],
            X + np.array([[1, 3, 5], [2, 4, 6]], dtype=np.float32),
        ),
        (
            "relax.op.add(x, relax.op.reshape(constant([1, 2, 3, 4, 5, 6]), (2, 3)))",
            ["relax.add"],
            X + np.array([[1, 2, 3], [4, 5, 6]], dtype=np.float32),
        ),
        (
            "relax.op.reshape(relax.op.permute_dims(x, [1, 0]), (6,))",
            ["relax.permute_dims", "relax.reshape"],
            X.T.reshape(6),
        ),
    ],
)
def test_simplifying_leaves_what_can_be_fused_and_the_same_value(
    in_compile_worker: InWorker, expression: str, operators: list[str], expected: np.ndarray
) -> None:
    seen, value = in_compile_worker(jobs.simplify_and_run, expression, X)
    assert seen == operators
    np.testing.assert_array_equal(value, expected)


def test_untuned_code_gives_torchs_answers(
    in_compile_worker: InWorker, in_tuning_worker: InWorker, make_request: MakeRequest, target: str, tmp_path: Path
) -> None:
    built = in_compile_worker(compile_worker.build, make_request(SHALLOW), {}, str(tmp_path), str(tmp_path / "objects"))
    difference, largest = in_tuning_worker(jobs.run_built, str(tmp_path), built, target)
    assert largest > 0.01
    assert difference <= RELATIVE_TOLERANCE * max(1.0, largest)


def test_kernels_tuned_in_one_network_build_in_another(
    in_compile_worker: InWorker,
    in_tuning_worker: InWorker,
    make_request: MakeRequest,
    shallow_kernels: dict[str, KernelTask],
    target: str,
    tmp_path: Path,
) -> None:
    traces = {}
    # A reduction, which legalisation names after its input, and a convolution with prepacked weights.
    for name in ("mean1", "fused_conv2d1_add11", "fused_conv2d2_add_add21"):
        result = in_tuning_worker(kernel_tuner.tune_kernel, make_job(shallow_kernels[name], target, tmp_path / name))
        assert isinstance(result, TuningResult)
        assert result.trace_json is not None
        traces[result.key] = result.trace_json
    assert in_compile_worker(jobs.fitting_traces, make_request(DEEP), traces) == sorted(traces)
    folder = tmp_path / "built"
    folder.mkdir()
    built = in_compile_worker(compile_worker.build, make_request(DEEP), traces, str(folder), str(tmp_path / "objects"))
    difference, largest = in_tuning_worker(jobs.run_built, str(folder), built, target)
    assert difference <= RELATIVE_TOLERANCE * max(1.0, largest)


def make_job(task: KernelTask, target: str, journal: Path, num_trials: int = 1) -> TuningJob:
    return TuningJob(
        key=task.key,
        name=task.name,
        workload_json=task.workload_json,
        target=target,
        num_trials=num_trials,
        trial_timeout_s=60.0,
        device_id="local",
        journal=str(journal),
    )
