"""How a candidate is trained: every setting with its meaning and default."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Recipe(BaseModel):
    """The proxy training of one candidate. The TOML section `[training]` has these keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int = Field(default=8, ge=1, description="Passes over the train split, or over `epoch_examples` of it.")
    epoch_examples: int | None = Field(
        default=None,
        ge=2,
        description=(
            "Examples of one epoch; the next goes on where it ended, so that none comes again before all have come."
            " Not set: all of train."
        ),
        examples=[256],
    )
    batch_size: int = Field(
        default=64, ge=2, description="Examples a step; a remainder is spread over the steps, none is dropped."
    )
    learning_rate: float = Field(default=3e-3, gt=0, description="Peak rate of AdamW, after warm-up.")
    warmup_share: float = Field(default=0.1, ge=0, le=0.5, description="Share of all steps in linear warm-up.")
    weight_decay: float = Field(default=0.02, ge=0, description="Decoupled weight decay (not on norms and biases).")
    label_smoothing: float = Field(default=0.05, ge=0, lt=1, description="Share of the target spread over classes.")
    clip_norm: float = Field(default=1.0, gt=0, description="Gradients are scaled down to this norm where larger.")
    shift_pixels: int = Field(
        default=0, ge=0, description="Train images move by up to this many pixels each way; 0 turns it off."
    )
    mirror: bool = Field(
        default=False, description="Mirror half of the train images left to right; wrong for digits and text."
    )
    keep: Literal["best", "last"] = Field(
        default="best", description="Weights that a training ends with: of the epoch that is best on val, or the last."
    )
    ladder: int | None = Field(
        default=None,
        ge=2,
        description=(
            "Successive halving: trainings pause after `epochs` / ladder, / ladder^2, ... epochs; the best 1 / ladder"
            " on val there, and those no faster one beats, go on."
        ),
        examples=[2],
    )
    min_epochs: int | None = Field(
        default=None,
        ge=1,
        description="Epochs of the lowest rung at least; needs a ladder, whose lowest is then 1.",
        examples=[2],
    )
    fast_path: Literal["channels_last", "bfloat16", "compiled"] | None = Field(
        default=None,
        description=(
            "A faster way to train. A gate compares it with the slow one before the first trial; where losses or"
            " scores differ beyond the spread of seeds, the study trains the usual way and says so. The usual way is"
            " channels_last, which the project's own tests compare; asked for by name it is compared here as well."
        ),
        examples=["bfloat16"],
    )
    recipe: Literal["grpo"] | None = Field(
        default=None,
        description=(
            "Not set: learn from examples. grpo: by reinforcement (group relative policy optimisation), for tasks whose"
            " answers can be checked; a step is an update on `batch_size` prompts."
        ),
        examples=["grpo"],
    )
    group: int | None = Field(
        default=None,
        ge=2,
        description="Answers that are sampled to each prompt; recipe grpo alone, which takes 8.",
        examples=[8],
    )
    num_threads: int = Field(default=2, ge=1, description="Processor threads that training uses.")
    timeout_s: float = Field(default=1800, gt=0, description="Wall clock after which a training counts as failed.")

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.min_epochs is not None and self.ladder is None:
            raise ValueError(f"min_epochs is {self.min_epochs} but there is no ladder; set ladder, or leave it out")
        if self.ladder is not None and len(self.rungs) < 2:
            raise ValueError(
                f"ladder is {self.ladder} with epochs {self.epochs} and min_epochs {self.min_epochs or 1}: one rung;"
                " allowed: epochs of at least ladder times min_epochs"
            )
        if self.group is not None and self.recipe != "grpo":
            raise ValueError(f"group is {self.group} but recipe is not grpo; set recipe, or leave it out")
        if self.recipe == "grpo" and self.fast_path is not None:
            raise ValueError(f"fast_path is {self.fast_path} with recipe grpo, which has none; leave one of them out")
        return self

    @property
    def rungs(self) -> tuple[int, ...]:
        """Epochs at which a training may end, the last one being all of them; that one alone without a ladder.

        >>> Recipe(epochs=8, ladder=2).rungs, Recipe(epochs=9, ladder=3, min_epochs=2).rungs, Recipe(epochs=8).rungs
        ((1, 2, 4, 8), (3, 9), (8,))
        """
        rungs = [self.epochs]
        while self.ladder is not None and rungs[0] // self.ladder >= (self.min_epochs or 1):
            rungs.insert(0, rungs[0] // self.ladder)
        return tuple(rungs)
