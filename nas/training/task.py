"""Which data a candidate is trained and judged on."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class TaskSettings(BaseModel):
    """The data of a study. The TOML section `[task]` has these keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(default="digits", description="Data set.")
    path: Path | None = Field(default=None, description="File or folder of the data; not set: where the name says.")
    val_share: float = Field(default=0.2, gt=0, lt=1, description="Share of examples that steer the search.")
    test_share: float = Field(
        default=0.2, gt=0, lt=1, description="Share of examples that are opened once, at the end."
    )
    max_train_examples: int | None = Field(default=None, ge=1, description="Train on at most this many examples.")
    seed: int = Field(default=0, ge=0, description="Seed of the split.")
