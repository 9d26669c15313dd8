from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from profilers import device, host
from profilers.device import differences, local_device
from profilers.errors import ProfilerError
from profilers.host import choose_cores, power_source, processor_of, target_string


def test_this_machine_has_one_fingerprint_whatever_it_is_called() -> None:
    device = local_device(1)
    assert device == local_device(1)
    assert local_device(1, id="laptop").fingerprint == device.fingerprint
    assert json.loads(device.target)["num-cores"] == 1
    assert len(device.cores) == device.num_threads == 1
    assert {"apache-tvm", "apache-tvm-ffi", "onnxruntime"} <= dict(device.runtimes).keys()
    assert {"processor", "kernel", "memory_gib"} <= dict(device.facts).keys()
    assert not any(word in name for name, _ in device.facts for word in ("load", "free", "uptime"))


def test_more_threads_than_cores_are_refused() -> None:
    with pytest.raises(ProfilerError, match="9999 threads"):
        local_device(9999)


def test_differences_name_what_changed_and_agree_with_the_fingerprint() -> None:
    ours = local_device(1)
    assert differences(ours, replace(ours, id="x")) == []
    theirs = replace(ours, cores=(99,), runtimes=(("onnxruntime", "0.1"),), facts=(*ours.facts, ("zeal", "much")))
    lines = [line for line in differences(ours, theirs) if "/" not in line.split(":")[0]]
    assert [line.split(":")[0] for line in lines] == ["cores", "apache-tvm", "apache-tvm-ffi", "onnxruntime", "zeal"]
    assert "'0.1' there" in lines[3] and "'nothing' here, 'much' there" in lines[4]
    assert ours.fingerprint != theirs.fingerprint


AVX512 = "avx512f avx512bw avx512cd avx512dq avx512vl avx2 fma bmi2"


@pytest.mark.parametrize(
    ("info", "machine", "mcpu"),
    [
        ({"vendor_id": "GenuineIntel", "flags": AVX512}, "x86_64", "skylake-avx512"),
        ({"vendor_id": "GenuineIntel", "flags": f"{AVX512} avx512_vnni"}, "x86_64", "cascadelake"),
        ({"vendor_id": "AuthenticAMD", "flags": "sha_ni avx2 fma bmi2 clzero"}, "x86_64", "znver1"),
        ({"vendor_id": "Unheard", "flags": AVX512}, "x86_64", "x86-64-v4"),
        ({"vendor_id": "GenuineIntel", "flags": ""}, "x86_64", "x86-64"),
        ({"CPU implementer": "0x41", "CPU part": "0xd0b"}, "aarch64", "cortex-a76"),
        ({"CPU implementer": "0x00", "CPU part": "0x000"}, "aarch64", "generic"),
    ],
)
def test_the_target_is_the_most_that_the_kernel_admits(info: dict[str, str], machine: str, mcpu: str) -> None:
    assert json.loads(target_string(info, machine, 2))["mcpu"] == mcpu


def test_what_a_hypervisor_hides_is_taken_from_the_target() -> None:
    needs = next(needs for _, name, needs in host._X86 if name == "sapphirerapids")
    bare = json.loads(target_string({"vendor_id": "GenuineIntel", "flags": f"{needs} amx_tile"}, "x86_64", 1))
    assert bare["mattr"] == ["-amx-int8", "-amx-bf16"]
    full = target_string({"vendor_id": "GenuineIntel", "flags": f"{needs} amx_tile amx_int8 amx_bf16"}, "x86_64", 1)
    assert "mattr" not in json.loads(full)


def test_a_machine_without_a_known_target_is_refused() -> None:
    with pytest.raises(ProfilerError, match="x86_64, aarch64"):
        target_string({}, "riscv64", 1)


def test_cores_are_fast_ones_of_their_own_and_core_0_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Cores 0-3 are two fast physical cores with two threads each, 4 and 5 are slow.
    siblings = {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3", 4: "4", 5: "5"}
    for core, text in siblings.items():
        folder = tmp_path / f"cpu{core}"
        (folder / "topology").mkdir(parents=True)
        (folder / "topology/thread_siblings_list").write_text(text)
        (folder / "cpu_capacity").write_text("1024" if core < 4 else "400")
    monkeypatch.setattr(host, "_CPU", tmp_path)
    assert choose_cores(siblings, 1) == (1,)
    assert choose_cores(siblings, 2) == (1, 2)
    assert choose_cores(siblings, 4) == (1, 2, 4, 5)
    assert choose_cores(siblings, 6) == (0, 1, 2, 3, 4, 5)
    assert choose_cores([0], 1) == (0,)


def test_the_processor_is_read() -> None:
    core = min(os.sched_getaffinity(0))
    assert processor_of(core)["processor"] == str(core)


def test_a_library_that_was_exchanged_is_another_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = dict(local_device(1).runtimes)
    assert any(name.startswith("onnxruntime/") for name in names) and "tvm/libtvm_runtime.so" in names
    (tmp_path / "made_up_runtime").mkdir()
    library = tmp_path / "made_up_runtime" / "core.so"
    library.write_bytes(b"one build")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(device, "LIBRARIES", {"made_up_runtime": "*.so"})
    before = local_device(1)
    assert local_device(1).fingerprint == before.fingerprint
    library.write_bytes(b"another build")
    assert [line.partition(":")[0] for line in differences(before, local_device(1))] == ["made_up_runtime/core.so"]


@pytest.mark.parametrize(
    ("supplies", "source"),
    [({}, None), ({"BAT0": ("Battery", "")}, "battery"), ({"AC": ("Mains", "1"), "BAT0": ("Battery", "")}, "mains"),
     ({"AC": ("Mains", "0"), "BAT0": ("Battery", "")}, "battery")],
)  # fmt: skip
def test_the_power_source_is_part_of_a_device(
    tmp_path: Path, supplies: dict[str, tuple[str, str]], source: str | None
) -> None:
    for name, (kind, online) in supplies.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "type").write_text(f"{kind}\n")
        if online:
            (tmp_path / name / "online").write_text(f"{online}\n")
    assert power_source(tmp_path) == source
