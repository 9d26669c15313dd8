"""The fault that needs the real compiler and device: compiled weights that are not the network's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from nas.bench.gate_faults import Caught, Fault
from nas.compile.tvm import Compiled, CompileFailure
from nas.config import load_config
from nas.ledger import Ledger
from nas.search.progress import Silent
from nas.search.smoke_run import SmokeFailedError, run_smoke
from nas.search.testing import made_up_rehearsal
from nas.search.workbench import LocalWorkbench
from nas.training.data.sources import load_task
from nas.training.result import Rehearsal, TrainFailure
from profilers.artifact import Artifact, hash_file
from search_spaces.candidate import Candidate
from search_spaces.conv_attention import ConvAttentionSpace
from search_spaces.space import Choices

LIBRARY = "model.so"


class SmallestFirst(ConvAttentionSpace):
    """The vision space with its smallest network as the reference, which compiles soonest."""

    def references(self) -> Mapping[str, Choices]:
        """The smallest first."""
        known = super().references()
        return {"smallest": known["smallest"], **known}


class DamagedBench(LocalWorkbench):
    """The real tools, but what they compile holds other weights than it should, its hash made to fit."""

    def compile(self, candidate: Candidate, phase: str, weights: Path | None = None) -> Compiled | CompileFailure:
        """Compiles for real, then exchanges the library for one with weights of another seed."""
        good = self._compiler.compile(candidate, phase, seed=0)
        other = self._compiler.compile(candidate, phase, seed=1)
        if isinstance(good, CompileFailure) or isinstance(other, CompileFailure):
            return good
        library = good.artifact.folder / LIBRARY
        library.write_bytes((other.artifact.folder / LIBRARY).read_bytes())
        files = tuple((name, hash_file(library) if name == LIBRARY else digest) for name, digest in good.artifact.files)
        damaged: Artifact = replace(good.artifact, files=files)
        damaged.save()
        return replace(good, artifact=damaged)

    def rehearse(self, candidate: Candidate) -> Rehearsal | TrainFailure:
        """Nothing is off: the fault is in the compiled code."""
        return made_up_rehearsal()


def damaged_weights(folder: Path) -> Caught:
    """The smoke gate on the real compiler and device, in a cache of its own."""
    import os

    before = os.environ.get("NAS_CACHE_DIR")
    os.environ["NAS_CACHE_DIR"] = str(folder / "cache")
    try:
        return _smoke(folder / "study")
    finally:
        if before is None:
            del os.environ["NAS_CACHE_DIR"]
        else:
            os.environ["NAS_CACHE_DIR"] = before


def _smoke(folder: Path) -> Caught:
    folder.mkdir()
    config = load_config(overrides={"compile.tuning_trials": 0, "compile.workers": 1, "output.out": folder})
    task = load_task(config.task)
    with Ledger(config.storage_url) as ledger:
        bench = DamagedBench(config, folder, ledger, ("infer",), Silent())
        try:
            run_smoke(SmallestFirst(task.input, task.head), bench, ledger, Silent())
        except SmokeFailedError as error:
            stage = str(error).partition("stage ")[2].partition(":")[0]
            return Caught(gates=(f"smoke:{stage}",), said=str(error))
        finally:
            bench.close()
    return Caught(gates=(), said="")


DEVICE_FAULTS = (
    Fault(name="compiled weights corrupted", gate="smoke:parity", word="outputs_differ", run=damaged_weights),
)
