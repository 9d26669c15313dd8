from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nas.compile import compile_worker
from nas.compile.compile_worker import CompileRequest
from nas.gates.parity import RELATIVE_TOLERANCE
from tests.nas_tests.compile import jobs, object_jobs
from tests.nas_tests.compile.candidates import DEEP, SHALLOW
from tests.nas_tests.compile.conftest import InWorker

MakeRequest = Callable[..., CompileRequest]


@pytest.fixture(scope="module")
def traces(in_compile_worker: InWorker, make_request: MakeRequest) -> dict[str, str]:
    drawn: dict[str, str] = in_compile_worker(object_jobs.draw_traces, make_request(SHALLOW))
    return drawn


def test_numpy_rearranges_every_weight_as_the_kernel_would(
    in_compile_worker: InWorker, make_request: MakeRequest, traces: dict[str, str]
) -> None:
    total, understood, equal = in_compile_worker(object_jobs.rearrangements, make_request(SHALLOW), traces)
    assert total >= 3
    assert understood == total
    assert equal == total


def test_a_kernel_that_computes_is_not_taken_for_a_rearrangement(in_compile_worker: InWorker) -> None:
    assert not in_compile_worker(object_jobs.is_copy_with_arithmetic_understood)


def test_linked_kernels_give_torchs_answers(
    in_compile_worker: InWorker, in_tuning_worker: InWorker, make_request: MakeRequest, target: str,
    traces: dict[str, str], tmp_path: Path,
) -> None:  # fmt: skip
    built = in_compile_worker(
        compile_worker.build, make_request(SHALLOW), traces, str(tmp_path), str(tmp_path / "objects")
    )
    difference, largest = in_tuning_worker(jobs.run_built, str(tmp_path), built, target)
    assert difference <= RELATIVE_TOLERANCE * max(1.0, largest)


def test_two_networks_share_the_objects_of_their_common_kernels(
    in_compile_worker: InWorker, make_request: MakeRequest, tmp_path: Path
) -> None:
    objects = str(tmp_path / "objects")
    first = in_compile_worker(object_jobs.build_into, make_request(SHALLOW), {}, str(tmp_path / "a"), objects)
    second = in_compile_worker(object_jobs.build_into, make_request(DEEP), {}, str(tmp_path / "b"), objects)
    alone = in_compile_worker(
        object_jobs.build_into, make_request(DEEP), {}, str(tmp_path / "c"), str(tmp_path / "objects of its own")
    )
    assert first < second
    assert len(second) < len(first) + len(alone)
    assert not [name for name in second if name.startswith(".")], "nothing half written is left"


def test_a_damaged_object_is_compiled_again(
    in_compile_worker: InWorker, in_tuning_worker: InWorker, make_request: MakeRequest, target: str, tmp_path: Path
) -> None:
    objects = tmp_path / "objects"
    before = in_compile_worker(object_jobs.build_into, make_request(SHALLOW), {}, str(tmp_path / "a"), str(objects))
    for path in objects.iterdir():
        path.write_bytes(path.read_bytes()[:-100])
    after = in_compile_worker(object_jobs.build_into, make_request(SHALLOW), {}, str(tmp_path / "b"), str(objects))
    assert {name.split("-")[0] for name in after} == {name.split("-")[0] for name in before}
    built = in_compile_worker(compile_worker.build, make_request(SHALLOW), {}, str(tmp_path), str(objects))
    difference, largest = in_tuning_worker(jobs.run_built, str(tmp_path), built, target)
    assert difference <= RELATIVE_TOLERANCE * max(1.0, largest)
