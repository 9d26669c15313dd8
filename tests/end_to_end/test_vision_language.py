"""A vision-language network of every kind of mixer: its three phases in TVM and ONNX Runtime answer as torch does."""

from __future__ import annotations

from pathlib import Path

import pytest

from nas.bench.contenders import export_for_onnxruntime
from nas.compile.tvm import TvmCompiler
from search_spaces.candidate import BlockSpec, Candidate
from search_spaces.hybrid_vision_language import HybridVisionLanguageSpace
from search_spaces.space import replay
from tests.end_to_end.test_language import MIXERS, assert_outputs_right, compiled


@pytest.fixture(scope="module")
def candidate() -> Candidate:
    """44 x 30 pixels in patches of 8 are 6 x 4 tokens, and the patches do not divide a side; 12 tokens of text."""
    sizes = {"channels": 3, "height": 44, "width": 30, "context": 12, "vocabulary": 50}
    space = HybridVisionLanguageSpace(
        BlockSpec.of("image_text", **sizes), BlockSpec.of("vision_language_model", vocabulary=50)
    )
    choices: dict[str, int | str] = {"stem.channels": 16, "stem.patch": 8, "width": 96, "depth": len(MIXERS)}
    for layer, mixer in enumerate(MIXERS):
        choices |= {f"layer{layer}.mixer": mixer, f"layer{layer}.expansion": 1}
    return replay(space, choices)


@pytest.mark.parametrize("phase", ["encode_image", "prefill@12", "decode@12"])
def test_both_runtimes_answer_as_torch_does(
    phase: str, untuned_compiler: TvmCompiler, candidate: Candidate, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    assert_outputs_right(compiled(untuned_compiler, candidate, phase), tmp_path)
    assert_outputs_right(export_for_onnxruntime(untuned_compiler, candidate, phase, 1, tmp_path / "onnx"), tmp_path)
