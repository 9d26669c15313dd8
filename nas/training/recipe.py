"""How a candidate is trained: every setting with its meaning and default."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


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
    num_threads: int = Field(default=2, ge=1, description="Processor threads that training uses.")
    timeout_s: float = Field(default=1800, gt=0, description="Wall clock after which a training counts as failed.")
