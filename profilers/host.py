"""Reads from Linux what kind of machine this is: processor, cores to use, and what decides a latency."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path

from profilers.errors import ProfilerError
from profilers.surroundings import read_text

_CPU = Path("/sys/devices/system/cpu")
_POWER = Path("/sys/class/power_supply")

_AVX512 = "avx512f avx512bw avx512cd avx512dq avx512vl avx2 fma bmi2"
_ICELAKE = f"{_AVX512} avx512_vnni avx512_vbmi2 avx512ifma avx512_bitalg avx512_vpopcntdq gfni vaes vpclmulqdq sha_ni"

_X86: tuple[tuple[str, str, str], ...] = (
    ("GenuineIntel", "sapphirerapids", f"{_ICELAKE} avx512_bf16 avx512_fp16 avx_vnni"),
    ("GenuineIntel", "icelake-server", _ICELAKE),
    ("GenuineIntel", "cascadelake", f"{_AVX512} avx512_vnni"),
    ("GenuineIntel", "skylake-avx512", _AVX512),
    ("GenuineIntel", "alderlake", "avx_vnni avx2 fma bmi2 gfni vaes vpclmulqdq sha_ni"),
    ("GenuineIntel", "haswell", "avx2 fma bmi2 movbe f16c"),
    ("AuthenticAMD", "znver5", f"{_ICELAKE} avx512_bf16 avx_vnni clzero"),
    ("AuthenticAMD", "znver4", f"{_ICELAKE} avx512_bf16 clzero"),
    ("AuthenticAMD", "znver3", "vaes vpclmulqdq clwb rdpid avx2 fma bmi2 clzero"),
    ("AuthenticAMD", "znver2", "clwb rdpid avx2 fma bmi2 clzero"),
    ("AuthenticAMD", "znver1", "sha_ni avx2 fma bmi2 clzero"),
    ("", "x86-64-v4", _AVX512),
    ("", "x86-64-v3", "avx2 fma bmi1 bmi2 f16c movbe abm"),
    ("", "x86-64-v2", "sse4_2 ssse3 popcnt cx16"),
    ("", "x86-64", ""),
)
"""Vendor, LLVM's name, flags of /proc/cpuinfo it needs; the first that fits (LLVM's X86.td)."""

_AMX = (("amx_tile", "amx-tile"), ("amx_int8", "amx-int8"), ("amx_bf16", "amx-bf16"))
"""What `sapphirerapids` implies for LLVM and hypervisors like to hide: (kernel's name, LLVM's)."""

_ARM: dict[tuple[str, str], str] = {
    ("0x41", "0xd03"): "cortex-a53", ("0x41", "0xd04"): "cortex-a35", ("0x41", "0xd05"): "cortex-a55",
    ("0x41", "0xd07"): "cortex-a57", ("0x41", "0xd08"): "cortex-a72", ("0x41", "0xd09"): "cortex-a73",
    ("0x41", "0xd0a"): "cortex-a75", ("0x41", "0xd0b"): "cortex-a76", ("0x41", "0xd0c"): "neoverse-n1",
    ("0x41", "0xd0d"): "cortex-a77", ("0x41", "0xd40"): "neoverse-v1", ("0x41", "0xd41"): "cortex-a78",
    ("0x41", "0xd44"): "cortex-x1", ("0x41", "0xd49"): "neoverse-n2", ("0x41", "0xd4f"): "neoverse-v2",
}  # fmt: skip
"""(implementer, part) -> LLVM's name (Arm's Main ID Register values; LLVM's Host.cpp)."""


def target_string(cpuinfo: Mapping[str, str], machine: str, num_threads: int) -> str:
    """TVM's target for a processor, as JSON: since 0.27 TVM takes no `llvm -mcpu=...` text.

    The name is chosen by what the kernel reports, not by model: a hypervisor may hide instructions,
    and code that uses them dies of SIGILL.

    >>> target_string({"vendor_id": "x", "flags": "avx2 fma bmi1 bmi2 f16c movbe abm"}, "x86_64", 1)
    '{"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1}'
    """
    refuse_emulation(cpuinfo, machine)
    target: dict[str, object] = {"kind": "llvm", "num-cores": num_threads}
    if machine == "x86_64":
        flags = set(cpuinfo.get("flags", "").split())
        target["mcpu"] = next(
            name
            for vendor, name, needs in _X86
            if vendor in ("", cpuinfo.get("vendor_id")) and flags >= set(needs.split())
        )
        if target["mcpu"] == "sapphirerapids":
            hidden = [f"-{attribute}" for flag, attribute in _AMX if flag not in flags]
            if hidden:
                target["mattr"] = hidden
    elif machine == "aarch64":
        part = (cpuinfo.get("CPU implementer", ""), cpuinfo.get("CPU part", ""))
        target |= {"mcpu": _ARM.get(part, "generic"), "mtriple": "aarch64-linux-gnu"}
    else:
        raise ProfilerError(f"machine {machine!r}: no compiler target known; allowed: x86_64, aarch64")
    return json.dumps(target, sort_keys=True)


def refuse_emulation(cpuinfo: Mapping[str, str], machine: str) -> None:
    """Refuses a process whose machine is not the processor's: what it would time is the emulator.

    User-mode emulators report their own machine by name, and the real one's `/proc/cpuinfo`.

    Raises:
        ProfilerError: this process is emulated.

    >>> refuse_emulation({"vendor_id": "AuthenticAMD"}, "aarch64")
    Traceback (most recent call last):
    profilers.errors.ProfilerError: this process runs as aarch64 on an x86_64 processor: a latency under emulation ...
    """
    field = {"x86_64": "vendor_id", "aarch64": "CPU implementer", "riscv64": "isa"}
    real = next((name for name, key in field.items() if key in cpuinfo), machine)
    if real != machine and machine in field:
        raise ProfilerError(
            f"this process runs as {machine} on an {real} processor: a latency under emulation measures the"
            " emulator; measure on the device"
        )


def processor_of(core: int) -> dict[str, str]:
    """The fields of `/proc/cpuinfo` for one core; big and little ones differ."""
    content = Path("/proc/cpuinfo").read_text()
    found: dict[str, str] = {}
    for paragraph in content.strip().split("\n\n"):
        fields = dict(line.split(":", 1) for line in paragraph.splitlines() if ":" in line)
        stripped = {name.strip(): value.strip() for name, value in fields.items()}
        if stripped.get("processor") == str(core) or not found:
            found = stripped
    return found


def choose_cores(allowed: Iterable[int], num_threads: int) -> tuple[int, ...]:
    """The cores to pin inference to: fast ones, one a physical core, core 0 last.

    Fast first, because on a machine with big and little cores a deployment would want the big
    ones. Core 0 last, because Linux serves most interrupts and its own timers there.

    Raises:
        ProfilerError: fewer cores than threads.
    """
    cores = sorted(allowed)
    if not 1 <= num_threads <= len(cores):
        raise ProfilerError(f"{num_threads} threads on cores {cores}: allowed are 1 to {len(cores)}")
    siblings = {core: read_text(_CPU / f"cpu{core}/topology/thread_siblings_list") or str(core) for core in cores}
    by_preference = sorted(cores, key=lambda core: (-_speed(core), core == 0, core))
    first_of_each = {siblings[core]: core for core in reversed(by_preference)}.values()
    others = [core for core in by_preference if core not in first_of_each]
    fast_first = [core for core in by_preference if core in first_of_each] + others
    return tuple(sorted(fast_first[:num_threads]))


def _speed(core: int) -> int:
    """Relative speed of a core: the kernel's capacity (Arm), else its highest frequency."""
    for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        if text := read_text(_CPU / f"cpu{core}" / name):
            return int(text)
    return 0


def cache_bytes(core: int, level: int) -> int | None:
    """Size of a core's data or unified cache; None where the kernel does not say."""
    for folder in sorted((_CPU / f"cpu{core}/cache").glob("index*")):
        size = read_text(folder / "size")
        if read_text(folder / "level") == str(level) and read_text(folder / "type") != "Instruction" and size:
            return int(size.rstrip("K")) * 1024
    return None


def host_facts(core: int) -> tuple[tuple[str, str], ...]:
    """(name, value) of what decides a latency and survives a restart: no load, no free memory."""
    info, cpu = processor_of(core), _CPU / f"cpu{core}"
    flags = sorted((info.get("flags") or info.get("Features") or "").split())
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal:"))
    facts = {
        "processor": info.get("model name") or f"{info.get('CPU implementer')}/{info.get('CPU part')}",
        "stepping": info.get("stepping") or info.get("CPU revision"),
        "flags_sha256": hashlib.sha256(" ".join(flags).encode()).hexdigest()[:12],
        "microcode": info.get("microcode"),
        "hypervisor": _hypervisor(flags),
        "num_cores": str(os.cpu_count()),
        "l2_bytes": str(cache_bytes(core, 2)),
        "l3_bytes": str(cache_bytes(core, 3)),
        # Rounded: the kernel keeps a little more or less for itself at each start.
        "memory_gib": str(round(int(memory.split()[1]) / (1 << 20))),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "governor": read_text(cpu / "cpufreq/scaling_governor"),
        "max_frequency_khz": read_text(cpu / "cpufreq/scaling_max_freq"),
        "power_source": power_source(_POWER),
        "turbo": read_text(_CPU / "cpufreq/boost") or read_text(_CPU / "intel_pstate/no_turbo"),
        "smt": read_text(_CPU / "smt/active"),
        "huge_pages": read_text(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
    }
    return tuple(sorted((name, value) for name, value in facts.items() if value is not None))


def power_source(folder: Path) -> str | None:
    """`mains` or `battery`; None on machines without either, which have no choice (ABI/testing/sysfs-class-power)."""
    supplies = {supply: read_text(supply / "type") for supply in sorted(folder.glob("*"))}
    if any(kind == "Mains" and read_text(supply / "online") == "1" for supply, kind in supplies.items()):
        return "mains"
    return "battery" if "Battery" in supplies.values() else None


def _hypervisor(flags: Iterable[str]) -> str:
    vendor = read_text(Path("/sys/class/dmi/id/sys_vendor"))
    return (vendor or "unknown") if "hypervisor" in flags else "none seen"
