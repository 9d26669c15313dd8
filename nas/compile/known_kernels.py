"""Which tuned kernel serves which layer: told by operations and uses, from the plans of networks compiled earlier.

A plan lists a network's kernels, their operations and how often each is called; the tuning database has their
seconds. A layer's operations follow from its shapes. Where a network has several layers and kernels of the same
operations, other networks tell them apart, or nobody does: such layers then have no known time. Neither torch nor TVM
is needed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from nas.compile.kernels import KernelTask
from search_spaces.layer import BYTES_PER_ELEMENT, Layer, Signature

_FAMILY_OF_NAME = (("conv2d", "conv"), ("matmul", "product"), ("softmax", "softmax"), ("mean", "pool"))
_FAMILY_OF_KIND = {
    "conv": "conv", "depthwise_conv": "conv", "linear": "product", "matmul": "product", "softmax": "softmax",
    "pool": "pool",
}  # fmt: skip
_Group = tuple[str, float]


def layer_seconds(
    networks: Iterable[tuple[Sequence[Layer], Sequence[KernelTask]]], seconds: Mapping[str, float]
) -> dict[Signature, float]:
    """Seconds of one call of the kernel of each layer that can be told.

    Args:
        networks: layers and compiled kernels of each.
        seconds: of kernels, by `KernelTask.key`.

    >>> from search_spaces.layer import matrix_product
    >>> layer = matrix_product("scores", batch=1, rows=2, inner=3, columns=4)
    >>> task = KernelTask(key="k", name="matmul1", num_uses=1, num_operations=48.0, is_heavy=True, workload_json="")
    >>> layer_seconds([([layer], [task])], {"k": 1e-6})
    {('matmul', 1, 2, 3, 4): 1e-06}
    """
    possible: dict[Signature, set[str]] = {}
    for layers, tasks in networks:
        for signature, keys in _possible_in(layers, tasks).items():
            possible[signature] = possible[signature] & keys if signature in possible else keys
    return {signature: seconds[key] for signature, key in _decided(possible).items() if key in seconds}


def operations_of(layer: Layer) -> float:
    """Operations of the kernel of a layer as TVM counts them; 0 for a softmax, of which a network says it by name.

    >>> from search_spaces.image_layers import convolution
    >>> layer, _ = convolution("c", (32, 8, 8), width=64, kernel=1, epilogue="bias+relu")
    >>> operations_of(layer) == 2 * layer.num_macs + 2 * 64 * 8 * 8
    True
    """
    outputs = layer.output_bytes // BYTES_PER_ELEMENT
    if layer.kind == "softmax":
        return 0.0
    if layer.kind == "pool":
        return float(layer.input_bytes // BYTES_PER_ELEMENT + outputs)
    last = layer.signature[-1]
    steps = len([part for part in last.split("+") if part]) if isinstance(last, str) else 0
    return float(2 * layer.num_macs + steps * outputs)


def _possible_in(layers: Sequence[Layer], tasks: Sequence[KernelTask]) -> dict[Signature, set[str]]:
    """For each layer of a network the kernels that are called as often and do as much."""
    wanted: defaultdict[_Group, Counter[Signature]] = defaultdict(Counter)
    for layer in layers:
        if layer.kind in _FAMILY_OF_KIND:
            wanted[_FAMILY_OF_KIND[layer.kind], operations_of(layer)][layer.signature] += 1
    offered: defaultdict[_Group, dict[str, int]] = defaultdict(dict)
    for task in tasks:
        family = next((family for part, family in _FAMILY_OF_NAME if part in task.name), None)
        if family is not None:
            offered[family, 0.0 if family == "softmax" else task.num_operations][task.key] = task.num_uses
    return {
        signature: {key for key, uses in offered[group].items() if uses == count}
        for group, counts in wanted.items()
        for signature, count in counts.items()
    }


def _decided(possible: Mapping[Signature, set[str]]) -> dict[Signature, str]:
    """The kernel of each layer that has one left when those of the others are taken; each serves one signature."""
    decided: dict[Signature, str] = {}
    while True:
        taken = set(decided.values())
        left = {signature: keys - taken for signature, keys in possible.items() if signature not in decided}
        sole = {signature: next(iter(keys)) for signature, keys in left.items() if len(keys) == 1}
        claims = Counter(sole.values())
        new = {signature: key for signature, key in sole.items() if claims[key] == 1}
        if not new:
            return decided
        decided.update(new)
