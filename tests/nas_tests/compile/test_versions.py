from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PIN = "apache-tvm-ffi==0.1.14.post1"

_BUILD_TUNE_CONTEXT = """
import sys
sys.modules["torch"] = None
from nas.compile.tvm_import import import_intrinsics
import_intrinsics()
import tvm
from tvm import te
from tvm.s_tir import meta_schedule
a = te.placeholder((4,), name="a")
b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
meta_schedule.TuneContext(
    mod=tvm.IRModule({"main": te.create_prim_func([a, b])}),
    target=tvm.target.Target({"kind": "llvm", "num-cores": 1}),
    space_generator="post-order-apply",
    search_strategy="replay-trace",
)
print("built")
"""


def run_tuning_child(code: str, environment: dict[str, str]) -> None:
    """Fails with the cure when `code` takes its process down."""
    child = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    if child.returncode < 0:
        seen = importlib.metadata.version("apache-tvm-ffi")
        pytest.fail(
            f"building a MetaSchedule TuneContext died of signal {-child.returncode} with apache-tvm-ffi {seen}:"
            f" 0.1.15.post1 and .post2 crash in ToJSONGraph; install the pin of pyproject.toml, {PIN}"
        )
    assert child.returncode == 0, child.stderr
    assert child.stdout.split() == ["built"]


def test_metaschedule_builds_a_tune_context_without_crashing(child_environment: dict[str, str]) -> None:
    run_tuning_child(_BUILD_TUNE_CONTEXT, child_environment)


def test_a_crash_is_reported_with_the_pin_that_cures_it(child_environment: dict[str, str]) -> None:
    with pytest.raises(pytest.fail.Exception, match=f"signal 11 .*{re.escape(PIN)}"):
        run_tuning_child("import os; os.kill(os.getpid(), 11)", child_environment)


def test_the_installed_tvm_is_the_pinned_one(package_root: Path) -> None:
    dependencies = tomllib.loads((package_root / "pyproject.toml").read_text())["project"]["dependencies"]
    pins = dict(dependency.split("==") for dependency in dependencies if dependency.startswith("apache-tvm"))
    assert sorted(pins) == ["apache-tvm", "apache-tvm-ffi"]
    assert pins == {name: importlib.metadata.version(name) for name in pins}
    assert f"apache-tvm-ffi=={pins['apache-tvm-ffi']}" == PIN
