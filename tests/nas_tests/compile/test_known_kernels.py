"""Layers and the tuned kernels that serve them."""

from __future__ import annotations

import pytest

from nas.compile.kernels import KernelTask
from nas.compile.known_kernels import layer_seconds, operations_of
from search_spaces.image_layers import convolution
from search_spaces.layer import Layer, matrix_product


def conv(channels: int, width: int, side: int, epilogue: str = "bias+relu") -> Layer:
    return convolution("c", (channels, side, side), width=width, kernel=1, epilogue=epilogue)[0]


def task(key: str, layer: Layer, uses: int = 1, name: str = "fused_conv2d3_add_relu1") -> KernelTask:
    operations = operations_of(layer)
    return KernelTask(key=key, name=name, num_uses=uses, num_operations=operations, is_heavy=True, workload_json="")


EXPAND, PROJECT = conv(32, 128, 8), conv(128, 32, 8, "bias+add")
"""The same multiply-accumulates; what is fused behind them tells them apart."""
SECONDS = {"e": 1e-6, "p": 2e-6, "a": 3e-6, "b": 4e-6}


def test_what_is_fused_behind_equal_work_tells_kernels_apart() -> None:
    assert EXPAND.num_macs == PROJECT.num_macs
    found = layer_seconds([([EXPAND, PROJECT], [task("e", EXPAND), task("p", PROJECT)])], SECONDS)
    assert found == {EXPAND.signature: 1e-6, PROJECT.signature: 2e-6}


TWIN = convolution("c", (256, 4, 4), width=256, kernel=5, epilogue="bias+relu", is_depthwise=True)[0]
SIBLING = convolution("c", (1024, 2, 2), width=1024, kernel=5, epilogue="bias+relu", is_depthwise=True)[0]
"""These do not differ in anything that a plan says but for how often they are called."""


def twins(uses_a: int, uses_b: int) -> tuple[list[Layer], list[KernelTask]]:
    return [TWIN] * uses_a + [SIBLING] * uses_b, [task("a", TWIN, uses_a), task("b", SIBLING, uses_b)]


def test_kernels_of_equal_work_that_never_come_apart_are_not_guessed() -> None:
    assert operations_of(TWIN) == operations_of(SIBLING)
    assert layer_seconds([twins(1, 1), twins(2, 2)], SECONDS) == {}


def test_another_network_tells_kernels_of_equal_work_apart() -> None:
    both = {TWIN.signature: 3e-6, SIBLING.signature: 4e-6}
    assert layer_seconds([twins(1, 2)], SECONDS) == both, "by their uses"
    alone = ([TWIN], [task("a", TWIN)])
    assert layer_seconds([twins(1, 1), alone], SECONDS) == both, "by the one that stands alone"


def test_a_kernel_without_a_record_has_no_time() -> None:
    assert layer_seconds([([EXPAND], [task("new", EXPAND)])], SECONDS) == {}


def test_a_product_is_not_taken_for_a_convolution_of_equal_work() -> None:
    product = matrix_product("m", batch=1, rows=64, inner=32, columns=128)
    same = convolution("c", (32, 8, 8), width=128, kernel=1, epilogue="bias")[0]
    tasks = [task("e", product, name="matmul1")]
    assert product.num_macs == same.num_macs
    assert layer_seconds([([product, same], tasks)], SECONDS) == {product.signature: 1e-6}


@pytest.mark.parametrize(("epilogue", "steps"), [("bias", 1), ("bias+relu", 2), ("bias+add", 2)])
def test_operations_are_counted_as_tvm_counts_them(epilogue: str, steps: int) -> None:
    layer = conv(32, 64, 4, epilogue)
    assert operations_of(layer) == 2 * layer.num_macs + steps * 64 * 16
