from __future__ import annotations

import pytest
from pydantic import ValidationError

from nas.config import ConfigError, load_config
from nas.training.recipe import Recipe


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ladder": 4, "epochs": 3}, "ladder is 4 with epochs 3 and min_epochs 1: one rung"),
        ({"ladder": 2, "epochs": 7, "min_epochs": 4}, "allowed: epochs of at least ladder times min_epochs"),
        ({"min_epochs": 2}, "min_epochs is 2 but there is no ladder"),
        ({"group": 8}, "group is 8 but recipe is not grpo"),
        ({"recipe": "grpo", "fast_path": "bfloat16"}, "fast_path is bfloat16 with recipe grpo"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Recipe.model_validate(settings)
    with pytest.raises(ConfigError, match=words):
        load_config(overrides={f"training.{key}": value for key, value in settings.items()})


def test_rungs_end_with_the_whole_training_and_rise_by_the_factor() -> None:
    assert Recipe(epochs=27, ladder=3).rungs == (1, 3, 9, 27)
    assert Recipe(epochs=20, ladder=2, min_epochs=5).rungs == (5, 10, 20)
    assert Recipe(epochs=20).rungs == (20,)
