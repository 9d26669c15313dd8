from __future__ import annotations

from dataclasses import replace

from nas.gates.slices import fallen_slices, slice_miss, worst_slice
from nas.search.testing import made_up_score

SCORE = replace(made_up_score(324, "val"), slices=(("cat", 0.95), ("dog", 0.6), ("cow", 0.9)))
REFERENCE = replace(SCORE, slices=(("cat", 0.9), ("dog", 0.9), ("cow", 0.9)))


def test_the_worst_slice_is_the_one_that_the_direction_makes_worst() -> None:
    assert worst_slice(SCORE, "maximize") == ("dog", 0.6)
    assert worst_slice(SCORE, "minimize") == ("cat", 0.95)


def test_a_slice_below_the_constraint_is_named_and_so_is_a_score_without_slices() -> None:
    assert slice_miss(SCORE, None, "maximize") is None
    assert slice_miss(SCORE, 0.6, "maximize") is None
    assert "slice 'dog' scores 0.600" in (slice_miss(SCORE, 0.61, "maximize") or "")
    assert "no score by slice" in (slice_miss(made_up_score(324, "val"), 0.1, "maximize") or "")
    assert slice_miss(SCORE, 0.9, "minimize") is not None


def test_a_slice_that_fell_against_the_reference_is_marked_though_the_mean_is_fine() -> None:
    (line,) = fallen_slices(SCORE, REFERENCE, "maximize")
    assert line == "slice 'dog' fell to 0.600, the reference network has 0.900"
    assert fallen_slices(SCORE, None, "maximize") == ()
    assert fallen_slices(SCORE, REFERENCE, "maximize", max_fall=0.31) == ()
    assert fallen_slices(REFERENCE, SCORE, "minimize")[0].startswith("slice 'dog' rose to 0.900")


def test_a_score_of_one_slice_says_all_there_is_to_say() -> None:
    one, before = (replace(SCORE, slices=(("python", value),)) for value in (3.0, 2.0))
    assert fallen_slices(one, before, "minimize") == ()


def test_of_bits_per_byte_the_constraint_is_the_largest_that_is_allowed() -> None:
    domains = replace(SCORE, metric="bits_per_byte", slices=(("english", 2.2), ("code", 3.1)))
    assert slice_miss(domains, 3.2, "minimize") is None
    assert slice_miss(domains, 3.0, "minimize") == "slice 'code' scores 3.100 on val, --min-slice is 3"
