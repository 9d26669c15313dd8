from __future__ import annotations

import numpy as np
import pytest

from profilers.errors import ProfilerError
from profilers.runtimes.runtime import RUNTIMES, aligned, find_runtime, make_runtime


def test_every_registered_runtime_can_be_made_and_names_its_file() -> None:
    # tvm_ffi would import torch here, which a measuring child forbids; see the real measurements.
    assert make_runtime(RUNTIMES["onnxruntime"]).file_name == "model.onnx"
    assert set(RUNTIMES) == {"tvm", "onnxruntime"}


def test_an_unknown_runtime_lists_the_known_ones() -> None:
    with pytest.raises(ProfilerError, match="'abacus' is not known; known"):
        find_runtime("abacus")


@pytest.mark.parametrize("array", [np.arange(7, dtype=np.int8)[1:], np.ones((2, 3)), np.array(True)])
def test_an_aligned_copy_is_equal_and_aligned(array: np.ndarray) -> None:
    copy = aligned(array)
    assert copy.ctypes.data % 64 == 0
    assert copy.dtype == array.dtype
    assert np.array_equal(copy, array)
