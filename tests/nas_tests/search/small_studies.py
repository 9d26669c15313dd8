"""Whole searches of a small space on a fake bench, with places at which they can be killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
import pytest

import nas.search.loop
from nas.budget import Budget
from nas.config import StudyConfig, load_config
from nas.ledger import Ledger
from nas.search.ladder import Ladder
from nas.search.loop import run_search, settle_budgets
from nas.search.progress import Silent
from nas.search.sampler import OptunaSuggest
from nas.search.study import open_optuna_study
from nas.search.testing import FakeWorkbench, Script, SmallSpace, pick, plausible
from nas.training.result import TrainFailure
from nas.trial import TrialRecord
from profilers.errors import ProfileFailure
from search_spaces.candidate import BlockSpec, Candidate
from search_spaces.conv_attention import ConvAttentionSpace
from search_spaces.space import Phase, V

IMAGE, CLASSES = BlockSpec.of("image", channels=1, height=8, width=8), BlockSpec.of("classifier", classes=10)
SMALL, LARGE = SmallSpace(IMAGE, CLASSES), ConvAttentionSpace(IMAGE, CLASSES)
DECODE, PREFILL, SHORT = "decode@512", "prefill@512", "decode@256"


class PhasedSpace(SmallSpace):
    """The small space with three entry points, as a language space has them."""

    name = "phased"

    def phases(self, candidate: Candidate) -> tuple[Phase, ...]:
        """`decode@512` is the primary one."""
        (infer,) = super().phases(candidate)
        return tuple(Phase(name=name, inputs=infer.inputs) for name in (DECODE, PREFILL, SHORT))


PHASED = PhasedSpace(IMAGE, CLASSES)


def eventful(candidate: Candidate) -> Script:
    """A third of the candidates do not get a score, each in its own way; the references do."""
    if candidate in (SMALL_REFERENCES + LARGE_REFERENCES):
        return plausible(candidate)
    failures = {
        0: Script(compile_failure="no rule for op"),
        1: Script(look=ProfileFailure(kind="outputs_differ", reason="0.3 off")),
        2: Script(look=ProfileFailure(kind="timeout", reason="60 s are over")),
        3: Script(train_failure=TrainFailure(kind="diverged", reason="loss is nan")),
        4: Script(train_failure=TrainFailure(kind="crashed", reason="signal 9")),
        5: Script(look=1e3),
    }
    return failures.get(pick(candidate, 16), plausible(candidate))


def references_of(space: ConvAttentionSpace) -> tuple[Candidate, ...]:
    from search_spaces.space import replay

    return tuple(replay(space, choices) for choices in space.references().values())


SMALL_REFERENCES, LARGE_REFERENCES = references_of(SMALL), references_of(LARGE)


class Killed(BaseException):
    """What a test calls a process that was killed: nothing in the product catches it."""


def never(point: str) -> None:
    """Lets a process live."""


@dataclass(slots=True)
class Killer:
    """Counts the places that a process passes, and ends it at one of them.

    Attributes:
        at: which one, from 1.
        name: count only places of this name; None counts all.
    """

    at: int
    name: str | None = None
    passed: list[str] = field(default_factory=list)

    def __call__(self, point: str) -> None:
        self.passed.append(point)
        if (
            self.name in (None, point)
            and (len(self.passed) if self.name is None else self.passed.count(point)) == self.at
        ):
            raise Killed(point)


class WatchedLedger(Ledger):
    """A ledger that can be killed before and after each write."""

    point: Callable[[str], None] = staticmethod(never)

    def record(self, record: TrialRecord) -> None:
        self.point("before record")
        super().record(record)
        self.point("after record")

    def record_stage(self, trial: int, stage: str, payload: Mapping[str, Any], seconds: float) -> None:
        super().record_stage(trial, stage, payload, seconds)
        self.point("after record_stage")

    def add_event(self, kind: str, detail: Mapping[str, Any]) -> None:
        self.point("before event")
        super().add_event(kind, detail)
        self.point("after event")


@dataclass(slots=True)
class Run:
    """What one process did.

    Attributes:
        bench: the tools it used.
        study: Optuna's half.
        records: the ledger's at the end, or when it was killed.
        ended_because: None when it was killed.
    """

    bench: FakeWorkbench
    study: optuna.Study
    records: tuple[TrialRecord, ...]
    budgets: tuple[Budget, ...]
    note: str | None
    ended_because: str | None


def configure(folder: Path, **overrides: object) -> StudyConfig:
    """Twelve trials within 5 ms in `folder`, unless overrides such as `trials=4` or `ladder=2` say otherwise."""
    settings: dict[str, object] = {"trials": 12, "budgets": ["infer=5ms"], "sampler": "tpe", **overrides}
    folder.mkdir(exist_ok=True)
    keys = {key: f"{'training' if key == 'ladder' else 'search'}.{key}" for key in settings}
    return load_config(overrides={"output.out": folder, **{keys[key]: value for key, value in settings.items()}})


def run(
    config: StudyConfig,
    *,
    space: ConvAttentionSpace = SMALL,
    script: Callable[[Candidate], Script] = eventful,
    point: Callable[[str], None] = never,
    phases: tuple[str, ...] = ("infer",),
) -> Run:
    """One process of a search: everything is opened anew, and closed when it ends or is killed."""
    ended_because, note = None, None
    with (
        WatchedLedger(config.storage_url) as ledger,
        open_optuna_study(config, "maximize") as study,
        pytest.MonkeyPatch.context() as monkeypatch,
    ):
        ledger.point = point  # type: ignore[method-assign]
        bench = FakeWorkbench(
            folder=config.results_dir, ledger=ledger, script=script, phases=phases, ladder=Ladder.of(config.training),
            on_call=lambda stage, candidate_id: point(stage),
        )  # fmt: skip
        watch_optuna(study, point, monkeypatch)
        try:
            bench.budgets, note = settle_budgets(config, space, ledger, bench, Silent())
            ended_because = run_search(config, space, study, ledger, bench, Silent())
        except Killed:
            pass
        return Run(
            bench=bench,
            study=study,
            records=ledger.records(),
            budgets=bench.budgets,
            note=note,
            ended_because=ended_because,
        )


def watch_optuna(study: optuna.Study, point: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every call through which the search changes Optuna's half a place to be killed at."""

    class WatchedSuggest(OptunaSuggest):
        def choose(self, name: str, options: Sequence[V]) -> V:
            choice = super().choose(name, options)
            point("after choice")
            return choice

    monkeypatch.setattr(nas.search.loop, "OptunaSuggest", WatchedSuggest)
    for name in ("ask", "tell", "enqueue_trial"):
        monkeypatch.setattr(study, name, _watched(name, getattr(study, name), point))


def _watched(name: str, work: Callable[..., Any], point: Callable[[str], None]) -> Callable[..., Any]:
    def watched(*arguments: Any, **options: Any) -> Any:
        point(f"before {name}")
        result = work(*arguments, **options)
        point(f"after {name}")
        return result

    return watched
