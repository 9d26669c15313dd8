"""Devices that code is compiled for ahead of time, without having them here: targets by name, and their linkers."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nas.errors import NasError
from profilers.device import DeviceSpec


class TargetError(NasError):
    """A target that code cannot be made for here: says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossTarget:
    """A kind of device.

    Attributes:
        name: on the command line.
        triple: architecture, system and ABI, as the GNU tools spell it.
        options: the rest of TVM's target.
    """

    name: str
    triple: str
    options: tuple[tuple[str, str | tuple[str, ...]], ...]

    def device(self, num_threads: int) -> DeviceSpec:
        """What is known of a device that is not here: enough to compile for, too little to measure on."""
        target: dict[str, Any] = {"kind": "llvm", "mtriple": self.triple, "num-cores": num_threads}
        target |= {name: list(value) if isinstance(value, tuple) else value for name, value in self.options}
        return DeviceSpec(
            id=self.name,
            target=json.dumps(target, sort_keys=True),
            cores=tuple(range(num_threads)),
            num_threads=num_threads,
            runtimes=(),
            facts=(),
        )


TARGETS: dict[str, CrossTarget] = {
    target.name: target
    for target in (
        # Arm's Cortex-A76 has the half-precision and dot-product instructions of Armv8.2-A (LLVM's AArch64.td).
        CrossTarget(name="rpi5", triple="aarch64-linux-gnu", options=(("mcpu", "cortex-a76"),)),
        CrossTarget(
            name="aarch64", triple="aarch64-linux-gnu", options=(("mattr", ("+v8.2a", "+neon")), ("mcpu", "generic"))
        ),
        # RV64GC with the double-float ABI: what Debian and every board with Linux have.
        CrossTarget(
            name="riscv64",
            triple="riscv64-linux-gnu",
            options=(("mabi", "lp64d"), ("mattr", ("+m", "+a", "+f", "+d", "+c")), ("mcpu", "generic-rv64")),
        ),
    )
}


def find_target(name: str) -> CrossTarget:
    """The target `name`.

    Raises:
        TargetError: there is none, or its linker is not installed.
    """
    if name not in TARGETS:
        raise TargetError(f"target {name!r} is unknown; allowed: {', '.join(sorted(TARGETS))}")
    find_linker(TARGETS[name].triple)
    return TARGETS[name]


def find_linker(triple: str) -> str:
    """The C compiler that links for `triple`.

    Raises:
        TargetError: it is not installed.
    """
    linker = f"{triple}-gcc"
    if shutil.which(linker) is None:
        architecture = triple.partition("-")[0]
        raise TargetError(f"linker {linker!r} was not found; install it, for instance the package gcc-{triple}"
                          f" of Debian, or compile on a {architecture} machine")  # fmt: skip
    return linker


def is_for_another_machine(target: str) -> bool:
    """Whether a target string is of another architecture than this machine's.

    >>> is_for_another_machine('{"kind": "llvm"}'), is_for_another_machine('{"mtriple": "avr-none"}')
    (False, True)
    """
    architecture = str(json.loads(target).get("mtriple", "")).partition("-")[0]
    return architecture not in ("", platform.machine())


def linking(target: str) -> Callable[..., Any] | None:
    """What TVM calls to link a library for a target string; None for its own choice, this machine's compiler.

    Raises:
        TargetError: the linker is not installed.
    """
    if not is_for_another_machine(target):
        return None
    from tvm.support.cc import cross_compiler

    triple = json.loads(target)["mtriple"]
    # Softmax calls expf; TVM names the libraries before the objects, where some linkers would drop one as unused.
    options = ["-shared", "-fPIC", "-Wl,--no-as-needed", "-lm"]
    compiler: Callable[..., Any] = cross_compiler(
        find_linker(triple), options=options, get_target_triple=lambda: triple
    )
    return compiler
