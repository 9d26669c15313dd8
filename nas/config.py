"""The configuration of a study: its sections, keys, meanings and defaults, and what identifies a study."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from nas.budget import Budget, contradictions, parse_budget
from nas.config_defaults import defaults_of
from nas.config_errors import ConfigError, allowed, explain, fields_of, show, unknown_value
from nas.config_toml import commented_toml_of, read_toml, toml_of
from nas.training.recipe import Recipe
from nas.training.task import TaskSettings

__all__ = [
    "CompileSettings", "ConfigError", "DeviceSettings", "OutputSettings", "SearchSettings", "StudyConfig",
    "commented_toml", "differences", "identity", "load_config", "to_toml", "without_secrets",
]  # fmt: skip

MAY_CHANGE = frozenset(
    {
        "search.trials",
        "search.minutes",
        "search.min_gain",
        "search.finalist_seeds",
        "search.min_slice",
        "search.zoo",
        "compile.workers",
        "output.out",
        "output.storage",
    }
)
"""Keys that a resumed study may change. Every other key, new ones included, makes it another study."""

_SETTINGS = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SearchSettings(BaseModel):
    """What is searched, how long, and within which budgets."""

    model_config = _SETTINGS

    space: str = Field(
        default="conv_attention", min_length=1, description="Search space; `nas spaces` lists those there are."
    )
    trials: int = Field(default=20, ge=1, description="Trials that a study ends with, resumed ones included.")
    sampler: Literal["budget", "tpe", "nsga2", "gp", "random"] = Field(
        default="budget",
        description="What proposes: budget (expected gain within the budgets), or one of Optuna's samplers.",
    )
    seed: int = Field(default=0, ge=0, lt=2**32, description="Seed of the sampler.")
    budgets: tuple[str, ...] = Field(
        default=(),
        description=(
            'What a network may cost at most, each with its unit: "5ms", "decode@512=8ms", "params=200k", "model=1MB",'
            ' "memory=64MiB", "state=64KiB". Without one: the latency of the reference network of the space and 5%'
            " more."
        ),
    )
    screen: bool = Field(
        default=True,
        description="Whether a cost model keeps candidates that are surely too slow from being compiled.",
    )
    measure: Literal["all", "unsure"] = Field(
        default="all",
        description=(
            "What is measured before it is trained: all, or only what the cost model is unsure of. What it is sure"
            " meets the budgets is then trained at once, and measured when it reaches the front."
        ),
    )
    minutes: float | None = Field(
        default=None, gt=0, description="Wall clock, in minutes, after which no trial is started.", examples=[30.0]
    )

    min_gain: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Share of the hypervolume: less expected three times in a row ends the search (sampler budget).",
        examples=[0.001],
    )

    finalist_seeds: int = Field(
        default=1, ge=1, le=10, description="Trainings of each network on the front, each with another seed."
    )
    min_slice: float | None = Field(
        default=None,
        description="Worst that a network on the front may score on val in any class or domain.",
        examples=[0.8],
    )

    zoo: bool = Field(
        default=True,
        description="Whether the named networks of the space are measured at the end, for comparison in the report.",
    )

    warm_start: tuple[Path, ...] | None = Field(
        default=None,
        description=(
            "Results folders of earlier studies of the same space and data, whose scores tell the sampler `budget`"
            " where to look; other devices, budgets and trainings are allowed for."
        ),
        examples=[["results/earlier-study"]],
    )

    @field_validator("budgets")
    @classmethod
    def _canonical(cls, budgets: tuple[str, ...]) -> tuple[str, ...]:
        # Canonical text, so that "0.005s" and "latency=5ms" are the same study.
        parsed = [parse_budget(text) for text in budgets]
        if lines := contradictions(parsed):
            raise ValueError("; ".join(lines))
        return tuple(str(budget) for budget in parsed)

    @property
    def parsed_budgets(self) -> tuple[Budget, ...]:
        """The budgets as values; empty means the latency of the reference candidate."""
        return tuple(parse_budget(text) for text in self.budgets)


class CompileSettings(BaseModel):
    """How a candidate becomes code for the device."""

    model_config = _SETTINGS

    runtime: Literal["tvm"] = Field(default="tvm", description="Compiler and runtime whose latency counts.")
    tuning_trials: int = Field(
        default=16, ge=0, description="Tuning trials for each new kernel; 0 uses only what the database already has."
    )
    timeout_s: float = Field(
        default=300, gt=0, description="Seconds after which one export or build counts as compile_failed."
    )
    workers: int = Field(
        default=2, ge=1, description="Processes that tune at the same time; schedules are still timed one by one."
    )


class DeviceSettings(BaseModel):
    """What the networks are measured on."""

    model_config = _SETTINGS

    id: str = Field(
        default="local", min_length=1, description="Name of the device; this machine is `local`, the only one so far."
    )
    threads: int = Field(default=1, ge=1, description="Threads that one inference uses.")


class OutputSettings(BaseModel):
    """Where results and state go."""

    model_config = _SETTINGS

    out: Path | None = Field(
        default=None, description="Results folder; not set: results/<space>-<task>.", examples=["results/my-study"]
    )
    storage: str | None = Field(
        default=None,
        min_length=1,
        description="Database URL; not set: an SQLite file in the results folder.",
        examples=["postgresql+psycopg://user@host/study"],
    )


class StudyConfig(BaseModel):
    """Everything that decides what a study does."""

    model_config = _SETTINGS

    search: SearchSettings = SearchSettings()
    task: TaskSettings = TaskSettings()
    training: Recipe = Recipe()
    compile: CompileSettings = CompileSettings()
    device: DeviceSettings = DeviceSettings()
    output: OutputSettings = OutputSettings()

    @property
    def results_dir(self) -> Path:
        """The results folder.

        >>> StudyConfig().results_dir.as_posix()
        'results/conv_attention-digits'
        """
        return self.output.out or Path("results") / f"{self.search.space}-{self.task.name}"

    @property
    def storage_url(self) -> str:
        """The database of Optuna and the ledger."""
        # Quoted: in a URL a `?` in the folder's name would begin its options, and %20 be a space.
        if self.output.storage is not None:
            # SQLAlchemy would look for psycopg2 under the plain name.
            return re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", self.output.storage)
        return f"sqlite:///{quote((self.results_dir / 'study.db').as_posix())}"


def load_config(
    path: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    known: Mapping[str, Collection[str]] | None = None,
) -> StudyConfig:
    """Reads a configuration; what neither file nor overrides say has the default of its space, or of its section.

    Args:
        path: a TOML file; None starts from the defaults.
        overrides: dotted key -> value, from the command line; None means not given.
        known: dotted key -> the names that a registry has for it, for instance
            `{"search.space": registry_names}`; other values are mistakes.

    Raises:
        ConfigError: lists every mistake, one line each.

    >>> load_config(overrides={"search.trials": 12}).search.trials
    12
    """
    source = str(path) if path is not None else "configuration"
    data = read_toml(path) if path is not None else {}
    mistakes: list[str] = []
    for key, value in (overrides or {}).items():
        if value is not None:
            section, _, name = key.rpartition(".")
            inner = data.setdefault(section, {}) if section else data
            if isinstance(inner, dict):
                inner[name] = value
    _lay_under(data)
    _remove_what_json_cannot_hold(data, "", mistakes)
    mistakes += _unknown_names(data, known or {})
    try:
        # JSON mode: strict about types, yet text is a path and a list is a tuple.
        config = StudyConfig.model_validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as error:
        raise ConfigError(source, [*mistakes, *explain(StudyConfig, error)]) from error
    if mistakes:
        raise ConfigError(source, mistakes)
    return config


def _lay_under(data: dict[str, Any]) -> None:
    """Puts the defaults of the space and data source that `data` names where `data` says nothing."""
    search, task = data.get("search", {}), data.get("task", {})
    space = search.get("space", SearchSettings().space) if isinstance(search, dict) else None
    name = task.get("name") if isinstance(task, dict) else None
    source = name if isinstance(name, str) else None
    for key, value in (defaults_of(space, source) if isinstance(space, str) else {}).items():
        section, _, name = key.rpartition(".")
        inner = data.setdefault(section, {})
        if isinstance(inner, dict):
            inner.setdefault(name, value)


def _remove_what_json_cannot_hold(data: dict[str, Any], prefix: str, mistakes: list[str]) -> None:
    """Dates, inf and nan are TOML, but no key takes them: each becomes a mistake, and leaves `data`."""
    fields = dict(fields_of(StudyConfig))
    for name, value in list(data.items()):
        key = prefix + name
        if isinstance(value, dict):
            _remove_what_json_cannot_hold(value, key + ".", mistakes)
            continue
        items = value if isinstance(value, (list, tuple)) else [value]
        odd = [item for item in items if not isinstance(item, (str, int, float, list, tuple, dict, Path))]
        odd += [item for item in items if isinstance(item, float) and not math.isfinite(item)]
        if odd and key in fields:
            mistakes.append(f"{key}: seen {odd[0] if isinstance(odd[0], float) else show(str(odd[0]))};"
                            f" allowed: {allowed(fields[key])}")  # fmt: skip
            del data[name]


def _unknown_names(data: Mapping[str, Any], known: Mapping[str, Collection[str]]) -> list[str]:
    lines = []
    for key, names in known.items():
        section, _, name = key.rpartition(".")
        inner = data.get(section)
        seen = inner.get(name) if isinstance(inner, dict) else None
        if isinstance(seen, str) and seen not in names:
            lines.append(unknown_value(key, seen, names))
    return lines


def to_toml(config: StudyConfig) -> str:
    """The configuration as TOML that `load_config` reads back to an equal one."""
    return toml_of(config)


def commented_toml(space: str | None = None) -> str:
    """Every key with its meaning, what is allowed and its default, for `nas init`.

    Args:
        space: whose defaults are shown; None means that of the default space.
    """
    config = load_config(overrides={"search.space": space})
    return commented_toml_of(config, "Configuration of `nas search`. Every key is optional and shown with its default.")


def without_secrets(config: StudyConfig) -> StudyConfig:
    """The configuration with the password of the storage URL masked, for reports and manifests.

    >>> secret = load_config(overrides={"output.storage": "postgresql://me:pw@host/db"})
    >>> without_secrets(secret).output.storage
    'postgresql://me:***@host/db'
    """
    if config.output.storage is None:
        return config
    from nas.ledger import shown_url

    output = config.output.model_copy(update={"storage": shown_url(config.output.storage)})
    return config.model_copy(update={"output": output})


def identity(config: StudyConfig) -> dict[str, Any]:
    """What must be equal for a results folder to be resumed: dotted key -> JSON value.

    >>> "search.seed" in identity(StudyConfig()), "search.trials" in identity(StudyConfig())
    (True, False)
    """
    data = config.model_dump(mode="json")
    flat = {f"{section}.{key}": value for section, inner in data.items() for key, value in inner.items()}
    flat["search.budgets"] = sorted(flat["search.budgets"])
    return {key: value for key, value in sorted(flat.items()) if key not in MAY_CHANGE}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """One line for each key in which two identities differ; empty when it is the same study.

    Args:
        old: `identity` of the study in the folder.
        new: `identity` of the configuration at hand.

    >>> later = load_config(overrides={"search.seed": 7, "search.trials": 99})
    >>> differences(identity(StudyConfig()), identity(later))
    ['search.seed: 0 in the folder, 7 now']
    """
    missing = "no such key"
    return [
        f"{key}: {show(old[key]) if key in old else missing} in the folder,"
        f" {show(new[key]) if key in new else missing} now"
        for key in sorted({*old, *new})
        # A key that came with a later version and is not set means what its absence meant.
        if old.get(key) != new.get(key)
    ]
