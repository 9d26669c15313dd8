from __future__ import annotations

import math

import numpy as np
import pytest

from tests.nas_tests.compile.conftest import InWorker
from tests.nas_tests.compile.schedules import jobs

KERNELS = [
    ("convolution", (8, 16, 32, 3, 1)),
    ("convolution", (9, 5, 24, 3, 2)),  # odd sizes, and channels that no vector divides
    ("convolution", (7, 13, 13, 1, 1)),
    ("convolution", (4, 64, 128, 1, 1)),
    ("convolution", (1, 32, 10, 1, 1)),
    ("depthwise", (8, 48, 5, 1)),
    ("depthwise", (7, 19, 3, 2)),
    ("product", (2, 12, 20, 16)),
    ("product", (1, 1, 256, 10)),
    ("product", (3, 5, 7, 11)),
    ("masked_product", (4, 1, 32, 512)),
    ("softmax", (6, 64)),
    ("softmax", (3, 20)),
    ("softmax", (5, 7)),
    ("mean", (4, 32)),
    ("mean", (3, 10)),
    ("root_mean_square", (1, 192)),  # one row: the reduced axis that is kept is as long as the rows are many
    ("root_mean_square", (6, 40)),
    ("transpose", (16, 48)),
    ("transpose", (5, 7)),
]


@pytest.mark.parametrize(("kernel", "sizes"), KERNELS, ids=[f"{name}-{sizes}" for name, sizes in KERNELS])
def test_every_proposal_computes_what_the_plain_kernel_does(
    in_tuning_worker: InWorker, target: str, kernel: str, sizes: tuple[int, ...]
) -> None:
    seen = in_tuning_worker(jobs.check_proposals, kernel, sizes, target, 4)
    assert seen["num_proposals"] > 0
    assert seen["num_built"] == min(4, seen["num_proposals"]), "a proposal that could not be made"
    assert 0.0 <= seen["difference"] < 1e-4


@pytest.mark.parametrize(
    "kernel", [("convolution", (8, 16, 32, 3, 1)), ("softmax", (64, 64)), ("product", (4, 64, 64, 64))]
)
def test_kernels_on_two_cores_compute_the_same(in_tuning_worker: InWorker, kernel: tuple[str, tuple[int, ...]]) -> None:
    seen = in_tuning_worker(jobs.check_proposals, *kernel, '{"kind": "llvm", "num-cores": 2}', 3)
    assert seen["num_built"] > 0
    assert 0.0 <= seen["difference"] < 1e-4


def test_a_kernel_that_random_schedules_cannot_be_drawn_for_has_none(in_tuning_worker: InWorker, target: str) -> None:
    assert in_tuning_worker(jobs.count_draws, "product", (4, 1, 32, 512), target, 3) == 3
    assert in_tuning_worker(jobs.count_draws, "masked_product", (4, 1, 32, 512), target, 3) in (0, 3)


def test_a_target_with_fewer_registers_gets_smaller_tiles(in_tuning_worker: InWorker) -> None:
    sizes = (16, 64, 64, 1, 1)
    avx2 = in_tuning_worker(jobs.labels, "convolution", sizes, '{"kind": "llvm", "mcpu": "haswell"}')
    avx512 = in_tuning_worker(jobs.labels, "convolution", sizes, '{"kind": "llvm", "mcpu": "skylake-avx512"}')
    assert largest_tile(avx2) <= 16 * 8 < largest_tile(avx512) <= 32 * 16


def largest_tile(labels: list[str]) -> int:
    return max(math.prod(int(part.split("=")[1].rstrip(",)")) for part in label.split()[:3]) for label in labels)


def test_proposals_come_in_the_same_order_each_time(in_tuning_worker: InWorker, target: str) -> None:
    one, other = (in_tuning_worker(jobs.labels, "depthwise", (8, 64, 5, 1), target) for _ in range(2))
    assert one == other
    assert len(set(one)) == len(one)


class TestExponentials:
    VALUES = tuple(np.linspace(-80.0, 80.0, 4001))

    @pytest.mark.parametrize(
        ("name", "exact"),
        [("exp", np.exp), ("sigmoid", lambda x: 1 / (1 + np.exp(-x))), ("tanh", np.tanh)],
    )
    def test_they_agree_with_double_precision(self, in_tuning_worker: InWorker, target: str, name: str, exact) -> None:  # type: ignore[no-untyped-def]
        seen = np.array(in_tuning_worker(jobs.exponentials, name, list(self.VALUES), target))
        expected = exact(np.array(self.VALUES, "float32").astype("float64"))
        scale = expected if name == "exp" else np.ones_like(expected)
        assert np.abs((seen - expected) / scale).max() < 3e-7

    def test_what_has_no_finite_answer_does_not_get_a_wrong_one(self, in_tuning_worker: InWorker, target: str) -> None:
        nan, low, lowest, zero = in_tuning_worker(jobs.exponentials, "exp", [math.nan, -200.0, -math.inf, 0.0], target)
        assert math.isnan(nan), "a network that diverged must not look healthy"
        assert 0.0 <= low < 1e-37
        assert 0.0 <= lowest < 1e-37
        assert zero == 1.0
