"""What the schedule tests run inside a tuning worker: kernels made from scratch, built with and without a schedule."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np


def check_proposals(kernel: str, sizes: tuple[int, ...], target_json: str, count: int) -> dict[str, Any]:
    """Builds a kernel as it is, and with its first `count` proposals; compares what they compute.

    Returns:
        `num_proposals`, `num_built`, and the largest `difference` between any of them and the plain kernel.
    """
    import tvm
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo

    from nas.compile.exponential import use_polynomials
    from nas.compile.schedules.proposals import proposals, scheduled

    target = tvm.target.Target(json.loads(target_json))
    plain = tvm.IRModule({"main": _KERNELS[kernel](*sizes)})
    shapes = [[int(size) for size in info.shape] for info in ArgInfo.from_prim_func(plain["main"])]
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal(shape).astype("float32") for shape in shapes[:-1]]
    expected = _run(plain, inputs, shapes[-1], target)
    fast = use_polynomials(plain)
    proposed = proposals(fast, target)
    differences = []
    for proposal in proposed[:count]:
        schedule = scheduled(fast, proposal)
        if schedule is not None:
            differences.append(float(np.abs(_run(schedule.mod, inputs, shapes[-1], target) - expected).max()))
    return {"num_proposals": len(proposed), "num_built": len(differences), "difference": max(differences, default=-1.0)}


def labels(kernel: str, sizes: tuple[int, ...], target_json: str) -> list[str]:
    """What is proposed, in order."""
    import tvm

    from nas.compile.schedules.proposals import proposals

    workload = tvm.IRModule({"main": _KERNELS[kernel](*sizes)})
    return [proposal.label for proposal in proposals(workload, tvm.target.Target(json.loads(target_json)))]


def exponentials(name: str, values: list[float], target_json: str) -> list[float]:
    """`exp`, `sigmoid` or `tanh` of values, as networks get them."""
    import tvm
    from tvm import te, topi

    from nas.compile.exponential import use_polynomials

    x = te.placeholder((len(values),), name="x")
    module = use_polynomials(tvm.IRModule({"main": te.create_prim_func([x, getattr(topi, name)(x)])}))
    assert f"T.{name}(" not in module.script()
    target = tvm.target.Target(json.loads(target_json))
    return [float(v) for v in _run(module, [np.array(values, "float32")], [len(values)], target)]


def _run(module: Any, inputs: list[np.ndarray[Any, Any]], shape: list[int], target: Any) -> np.ndarray[Any, Any]:
    """What a kernel computes. Weights keep their layout here: the rearrangement is part of the module."""
    import tvm

    library = tvm.tirx.build(module, target=target)
    output = tvm.runtime.tensor(np.zeros(shape, "float32"))
    library["main"](*[tvm.runtime.tensor(array) for array in inputs], output)
    array: np.ndarray[Any, Any] = output.numpy()
    return array


def _convolution(height: int, channels: int, filters: int, window: int, stride: int) -> Any:
    from tvm import te, topi

    x = te.placeholder((1, height, height, channels), name="x")
    weights = te.placeholder((window, window, channels, filters), name="weights")
    bias = te.placeholder((1, 1, 1, filters), name="bias")
    summed = topi.nn.conv2d_nhwc(x, weights, stride, window // 2, 1)
    return _with_free_weights(te.create_prim_func([x, weights, bias, topi.nn.relu(topi.add(summed, bias))]))


def _depthwise(height: int, channels: int, window: int, stride: int) -> Any:
    from tvm import te, topi

    x = te.placeholder((1, height, height, channels), name="x")
    weights = te.placeholder((window, window, 1, channels), name="weights")
    bias = te.placeholder((1, 1, 1, channels), name="bias")
    summed = topi.nn.group_conv2d_nhwc(x, weights, stride, window // 2, 1, channels, "float32")
    return _with_free_weights(te.create_prim_func([x, weights, bias, topi.nn.relu(topi.add(summed, bias))]))


def _product(batch: int, rows: int, depth: int, columns: int) -> Any:
    from tvm import te, topi

    a = te.placeholder((batch, rows, depth), name="a")
    b = te.placeholder((batch, depth, columns), name="b")
    return te.create_prim_func([a, b, topi.nn.batch_matmul(a, b, transpose_b=False)])


def _masked_product(batch: int, rows: int, depth: int, columns: int) -> Any:
    """Scores of attention to a cache: the mask is computed in the kernel, from a position."""
    from tvm import te, tirx, topi

    a = te.placeholder((batch, rows, depth), name="a")
    b = te.placeholder((batch, depth, columns), name="b")
    position = te.placeholder((1,), name="position")
    mask = te.compute((columns,), lambda i: tirx.Select(position[0] <= i.astype("float32"), -1e3, 0.0), name="mask")
    summed = topi.add(topi.nn.batch_matmul(a, b, transpose_b=False), mask)
    return te.create_prim_func([a, b, position, summed])


def count_draws(name: str, sizes: tuple[int, ...], target: str, num_draws: int) -> int:
    """How many random schedules there are of a kernel when so many are asked for."""
    import tvm

    from nas.compile.kernel_tuner import _random_draws

    workload = tvm.IRModule({"main": _KERNELS[name](*sizes).with_attr("global_symbol", "main")})
    return len(list(_random_draws(workload, tvm.target.Target(json.loads(target)), num_draws)))


def _softmax(rows: int, length: int) -> Any:
    from tvm import te, topi

    x = te.placeholder((1, rows, length), name="x")
    return te.create_prim_func([x, topi.nn.softmax(x, axis=-1)])


def _mean(height: int, channels: int) -> Any:
    from tvm import te, topi

    x = te.placeholder((1, height, height, channels), name="x")
    return te.create_prim_func([x, topi.divide(topi.sum(x, axis=[1, 2]), float(height * height))])


def _root_mean_square(rows: int, length: int) -> Any:
    """A norm that keeps the reduced axis with size 1, and scales by a constant operand."""
    from tvm import te, topi

    x = te.placeholder((rows, length), name="x")
    weight = te.placeholder((length,), name="weight")
    mean = topi.divide(topi.sum(topi.multiply(x, x), axis=-1, keepdims=True), float(length))
    normed = topi.multiply(x, topi.rsqrt(topi.add(mean, 1e-5)))
    return _with_free_weights(te.create_prim_func([x, weight, topi.multiply(normed, weight)]))


def _transpose(rows: int, columns: int) -> Any:
    from tvm import te, topi

    x = te.placeholder((rows, columns), name="x")
    return te.create_prim_func([x, topi.multiply(topi.transpose(x), 2.0)])


def _with_free_weights(function: Any) -> Any:
    return function.with_attr("layout_free_buffers", [1])


_KERNELS: dict[str, Callable[..., Any]] = {
    "convolution": _convolution,
    "depthwise": _depthwise,
    "product": _product,
    "masked_product": _masked_product,
    "softmax": _softmax,
    "mean": _mean,
    "root_mean_square": _root_mean_square,
    "transpose": _transpose,
}
