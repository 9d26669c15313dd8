from __future__ import annotations

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nas.compile import targets
from nas.compile.compile_worker import CompileRequest
from nas.compile.targets import TARGETS, TargetError, find_linker, find_target
from profilers.artifact import Artifact
from profilers.local import LocalProfiler
from profilers.measurement import SEARCH
from tests.nas_tests.compile import cross_jobs
from tests.nas_tests.compile.candidates import SHALLOW
from tests.nas_tests.compile.conftest import InWorker

_MACHINES = {"aarch64-linux-gnu": "AArch64", "riscv64-linux-gnu": "RISC-V"}


def test_an_unknown_target_lists_the_known_ones() -> None:
    with pytest.raises(TargetError, match="'pdp11' is unknown; allowed: aarch64, riscv64, rpi5"):
        find_target("pdp11")


def test_a_missing_linker_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TargetError, match="linker 'riscv64-linux-gnu-gcc' was not found; install it"):
        find_target("riscv64")


def test_the_number_of_threads_is_part_of_the_target() -> None:
    first, second = (TARGETS["rpi5"].device(count) for count in (1, 4))
    assert (json.loads(first.target)["num-cores"], json.loads(second.target)["num-cores"]) == (1, 4)
    assert first.fingerprint != second.fingerprint


def test_code_for_this_machine_is_linked_as_ever() -> None:
    assert targets.linking('{"kind": "llvm", "num-cores": 1}') is None


def test_code_for_another_device_is_never_timed_here() -> None:
    device = TARGETS["rpi5"].device(1)
    artifact = Artifact(
        folder=Path("nowhere"), candidate_id="c", phase="infer", runtime="tvm", target=device.target,
        precision="float32", num_threads=1, inputs=(), outputs=(), files=(), tuned_coverage=0.0, model_bytes=1,
    )  # fmt: skip
    failure = LocalProfiler().measure(artifact, SEARCH)
    assert getattr(failure, "kind", None) == "bad_artifact"
    assert "cortex-a76" in getattr(failure, "reason", "")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_network_compiled_for_another_device_gives_torchs_answer_under_emulation(
    name: str, tmp_path: Path, in_compile_worker: InWorker
) -> None:
    target = TARGETS[name]
    emulator = f"qemu-{target.triple.partition('-')[0]}"
    for tool in (f"{target.triple}-gcc", emulator):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    request = CompileRequest(
        candidate_json=SHALLOW.canonical_json(), phase="infer", weights=None, seed=0, target=target.device(1).target
    )
    built = in_compile_worker(cross_jobs.build_and_plan, request, str(tmp_path))
    assert built.unusable == ()
    assert _MACHINES[target.triple] in run("readelf", "-h", str(tmp_path / "model.so"))
    driver = tmp_path / "run_network"
    source = Path(__file__).with_name("run_network.c")
    run(find_linker(target.triple), "-rdynamic", "-o", str(driver), str(source), *include_options(), "-ldl")
    files = [str(tmp_path / each) for each in ("model.so", "plan.txt", "data.bin", "answer.bin")]
    run(emulator, "-L", f"/usr/{target.triple}", str(driver), *files)
    with np.load(tmp_path / "parity.npz") as arrays:
        expected: Any = arrays["output_0"]
    answer = np.fromfile(tmp_path / "answer.bin", np.float32).reshape(expected.shape)
    np.testing.assert_allclose(answer, expected, rtol=1e-3, atol=1e-4)


def include_options() -> list[str]:
    package = find_spec("tvm_ffi")
    assert package is not None and package.origin is not None
    return [f"-I{Path(package.origin).parent / 'include'}"]


def run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout
