"""Exports in this process: `run` is where the product starts one of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nas.compile.onnx
from nas.compile.compile_worker import CompileRequest
from nas.compile.onnx import DATA_NAME, MODEL_NAME, ContradictionError, PortableFiles, export_portable
from nas.compile.workers import WorkerFailure
from nas.portable import ExportError, export_phase
from nas.training.checkpoint import save_state
from profilers.artifact import Artifact
from profilers.errors import ProfileFailure
from profilers.parity_check import ParityCheck, check_parity
from search_spaces.candidate import Candidate
from search_spaces.registry import example_space
from search_spaces.space import replay
from tests.nas_tests.compile.candidates import SHALLOW

SPACE = example_space("hybrid_language", {"context": 16, "vocabulary": 17})
LANGUAGE: Candidate = replay(SPACE, SPACE.references()["smallest"])


def run_here(function: Callable[..., Any], *arguments: Any, timeout_s: float) -> Any:
    return function(*arguments)


@pytest.fixture(scope="module")
def decode(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PortableFiles]:
    """Files of `decode@16` as the exporting process leaves them."""
    folder = tmp_path_factory.mktemp("decode")
    request = CompileRequest(
        candidate_json=LANGUAGE.canonical_json(), phase="decode@16", weights=None, seed=0, target="any"
    )
    return folder, export_portable(request, str(folder))


def double_a_weight(folder: Path) -> None:
    import onnx
    from onnx import numpy_helper

    model = onnx.load(folder / MODEL_NAME)
    tensor = max(model.graph.initializer, key=lambda each: len(each.raw_data))
    tensor.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(tensor), tensor.name))
    onnx.save(model, folder / MODEL_NAME)


def test_a_phase_becomes_a_file_that_gives_torchs_answers(tmp_path: Path) -> None:
    phase = "prefill@16"
    exported = export_phase(LANGUAGE, phase, None, tmp_path, run_here)
    exported.artifact.verify()
    assert Artifact.load(tmp_path) == exported.artifact
    assert {path.name for path in tmp_path.iterdir()} == {MODEL_NAME, "parity.npz", "artifact.json"}
    assert exported.artifact.phase == phase
    assert exported.artifact.model_bytes == (tmp_path / MODEL_NAME).stat().st_size
    assert 0 < exported.parity_max_abs < 1e-3
    assert exported.export_peak_bytes > 0 and exported.check_peak_bytes > 0


def test_given_weights_are_in_the_file(tmp_path: Path) -> None:
    import onnxruntime
    import torch

    from search_spaces.build import build_model

    torch.manual_seed(5)
    model = build_model(SHALLOW).eval()
    save_state(tmp_path / "weights.pt", model.state_dict())
    folder = tmp_path / "out"
    folder.mkdir()
    export_phase(SHALLOW, "infer", tmp_path / "weights.pt", folder, run_here)
    image = np.random.default_rng(0).standard_normal((1, 1, 8, 8)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(folder / MODEL_NAME), providers=["CPUExecutionProvider"])
    (seen,) = session.run(None, {"image": image})
    with torch.no_grad():
        expected = model(torch.from_numpy(image)).numpy()
    assert np.abs(seen - expected).max() < 1e-4


def test_a_file_that_does_not_give_torchs_answers_is_refused(
    decode: tuple[Path, PortableFiles], tmp_path: Path
) -> None:
    folder, made = decode

    def run_badly(*_: Any, timeout_s: float) -> PortableFiles:
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
        double_a_weight(tmp_path)
        return made

    with pytest.raises(ExportError, match="decode@16: ONNX Runtime against torch: outputs_differ"):
        export_phase(LANGUAGE, "decode@16", None, tmp_path, run_badly)


def test_a_network_whose_decode_contradicts_its_whole_pass_is_not_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from search_spaces.blocks.language_model import LanguageModel

    real = LanguageModel.decode
    monkeypatch.setattr(
        LanguageModel, "decode", lambda self, token, position, *state: real(self, token, position + 1, *state)
    )
    attention = replay(SPACE, SPACE.references()["attention_only"])
    with pytest.raises(ContradictionError, match="decoding token by token contradicts one pass over 16 tokens"):
        export_phase(attention, "decode@16", None, tmp_path, run_here)
    assert not list(tmp_path.iterdir())


def test_what_the_exporting_process_says_is_one_line(tmp_path: Path) -> None:
    def fail(*_: Any, timeout_s: float) -> WorkerFailure:
        return WorkerFailure(kind="died", reason="the worker process died (signal 9)")

    with pytest.raises(ExportError, match=r"^decode@16: the worker process died \(signal 9\)$"):
        export_phase(LANGUAGE, "decode@16", None, tmp_path, fail)


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """An export whose weights lie beside the model, as if one file held a kilobyte."""
    folder = tmp_path_factory.mktemp("split")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nas.compile.onnx, "ONE_PIECE_BYTES", 1024)
        return export_phase(LANGUAGE, "decode@16", None, folder, run_here).artifact


def test_weights_too_large_for_one_file_lie_beside_it_and_are_part_of_the_artifact(split: Artifact) -> None:
    data = split.folder / DATA_NAME
    assert DATA_NAME in dict(split.files)
    assert data.stat().st_size > 100 * 1024
    assert split.model_bytes == data.stat().st_size + (split.folder / MODEL_NAME).stat().st_size
    assert isinstance(check_parity(split, tolerance=1e-4), ParityCheck)


def test_weights_beside_a_model_that_changed_or_are_gone_are_noticed_before_it_runs(
    split: Artifact, tmp_path: Path
) -> None:
    shutil.copytree(split.folder, tmp_path, dirs_exist_ok=True)
    split = Artifact.load(tmp_path)
    data = tmp_path / DATA_NAME
    content = bytearray(data.read_bytes())
    content[1000] ^= 1
    data.write_bytes(content)
    changed = check_parity(split, tolerance=1e-4)
    data.unlink()
    missing = check_parity(split, tolerance=1e-4)
    for found, words in ((changed, "has SHA-256"), (missing, f"file '{DATA_NAME}' is missing")):
        assert isinstance(found, ProfileFailure)
        assert found.kind == "bad_artifact" and words in found.reason
