"""Warm starts: what an earlier study of the same space and data scored, taken over once as evidence of quality.

The other study may be of another device, other budgets or another training; its latencies are not looked at, and
none of its networks becomes a trial here. What is taken over is written into this study's own ledger, so that a resumed
search proposes the same whatever became of the other folder.

The other folder is not trusted: its manifest is JSON, its database is read as rows of JSON text, only ever read, and
no file of it is loaded as anything else.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nas.config import StudyConfig
from nas.errors import NasError
from nas.ledger import SCHEMA_VERSION, Ledger
from nas.search.progress import Watcher
from nas.search.sampler import BUDGET_SAMPLER
from nas.search.stored import stored_config
from nas.search.study import DATABASE_NAME, MANIFEST_NAME
from nas.search.study_lock import StudyError
from nas.search.transfer import EarlierScores
from nas.training.task import Task
from nas.trial import Outcome, TrialRecord
from search_spaces.candidate import CandidateError
from search_spaces.space import SearchSpace

EVENT = "warm_start"
MAX_TAKEN = 300
"""Networks that are taken over, half of them the best: a surrogate learns from 400 in all."""

MAX_ROWS = 20_000
MAX_RECORD_BYTES = 1 << 16
MAX_MANIFEST_BYTES = 1 << 24
MAX_STEPS = 20_000
"""Of a thousand instructions of SQLite's machine each; reading 10,000 trials takes a few hundred."""


class WarmStartError(NasError):
    """A study that another one cannot start from: one line, whatever was found in its files."""

    def __init__(self, folder: Path, reason: str) -> None:
        line = " ".join("".join(each if each.isprintable() else " " for each in reason).split())
        super().__init__(f"warm start from {folder}: {line[:500]}")


def take_over(config: StudyConfig, space: SearchSpace, task: Task, ledger: Ledger, watcher: Watcher) -> None:
    """Reads every study that the configuration names, once a study, and notes in the ledger what it scored.

    Raises:
        WarmStartError: a folder holds no study, or one of another space or of other data.
    """
    folders = config.search.warm_start or ()
    if folders and config.search.sampler != BUDGET_SAMPLER:
        raise WarmStartError(
            folders[0], f"sampler {config.search.sampler!r} cannot use earlier scores; allowed: {BUDGET_SAMPLER!r}"
        )
    known = {scores.study for scores in earlier_scores(ledger)}
    for folder in dict.fromkeys(folders):
        if str(folder) in known:
            continue
        if folder.resolve() == config.results_dir.resolve():
            raise WarmStartError(folder, "is this study's own folder, which is resumed anyway")
        scores, changed = read_study(folder, config, space, task)
        detail = {"study": scores.study, "choices": [dict(each) for each in scores.choices],
                  "qualities": list(scores.qualities)}  # fmt: skip
        ledger.add_event(EVENT, detail)
        shift = f"; trained otherwise ({'; '.join(changed)}), which is allowed for" if changed else ""
        watcher.note(f"warm start from {folder}: {len(scores.qualities)} scored networks{shift}")


def earlier_scores(ledger: Ledger) -> tuple[EarlierScores, ...]:
    """What was taken over into this ledger, each study once."""
    found: dict[str, EarlierScores] = {}
    for event in ledger.events(EVENT):  # several workers may have noted the same study; the first one counts
        detail = event.detail
        scores = EarlierScores(
            study=detail["study"], choices=tuple(detail["choices"]), qualities=tuple(detail["qualities"])
        )
        found.setdefault(scores.study, scores)
    return tuple(found.values())


def read_study(
    folder: Path, config: StudyConfig, space: SearchSpace, task: Task
) -> tuple[EarlierScores, tuple[str, ...]]:
    """What a study scored, and in which settings its training differs from that of `config`.

    Args:
        folder: its results folder.
        config, space, task: of the study at hand. Space, version and every example of the data must be the same: other
            examples would be another quantity, and a split drawn anew could let this study's test examples steer it.

    Raises:
        WarmStartError: it cannot be started from.
    """
    if (folder / MANIFEST_NAME).is_file() and (folder / MANIFEST_NAME).stat().st_size > MAX_MANIFEST_BYTES:
        raise WarmStartError(folder, f"{MANIFEST_NAME} has more than {MAX_MANIFEST_BYTES} bytes, so it is none of ours")
    try:
        other = stored_config(folder)
    except (StudyError, RecursionError) as error:
        raise WarmStartError(folder, str(error)) from error
    if other.search.space != space.name:
        raise WarmStartError(folder, f"a study of space {other.search.space!r}; allowed: {space.name!r}, this study's")
    if _fingerprint(folder) != task.fingerprint:
        raise WarmStartError(
            folder,
            f"learnt other data ({_told(other)}) than this study ({_told(config)}); allowed:"
            " the same examples in the same splits, as scores of others say nothing sure about these",
        )
    if other.output.storage is not None:
        raise WarmStartError(folder, f"its database is not in the folder; allowed: studies with a {DATABASE_NAME}")
    sign = 1.0 if task.direction == "maximize" else -1.0
    scored = [_scored(record, folder, space, task) for record in _records(folder)]
    if not scored:
        raise WarmStartError(folder, "it scored no network yet, so there is nothing to start from")
    taken = _thinned([(choices, sign * value) for choices, value in scored])
    scores = EarlierScores(
        study=str(folder),
        choices=tuple(choices for choices, _ in taken),
        qualities=tuple(quality for _, quality in taken),
    )
    return scores, _changed(other, config)


def _told(config: StudyConfig) -> str:
    task = config.task
    return ", ".join([task.name, *([task.path] if task.path else []), f"seed {task.seed}"])


def _changed(other: StudyConfig, config: StudyConfig) -> tuple[str, ...]:
    then, now = other.training.model_dump(), config.training.model_dump()
    return tuple(f"{key} {then[key]} then, {now[key]} now" for key in now if then[key] != now[key])


def _fingerprint(folder: Path) -> object:
    path = folder / MANIFEST_NAME
    try:
        return json.loads(path.read_text())["task"]["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise WarmStartError(folder, f"{path.name} does not say which data it is of") from error


def _records(folder: Path) -> Iterator[TrialRecord]:
    """The scored trials of a study's ledger, repeated candidates left out."""
    path = folder / DATABASE_NAME
    try:
        with contextlib.closing(_opened(path)) as connection:
            _check_tables(connection)
            rows = connection.execute(
                "SELECT trial, CASE WHEN length(record) <= ? THEN record END FROM nas_trials WHERE outcome = ?"
                " ORDER BY trial LIMIT ?",
                (MAX_RECORD_BYTES, Outcome.SCORED.value, MAX_ROWS),
            ).fetchall()
    except (sqlite3.Error, ValueError, OverflowError) as error:
        raise WarmStartError(folder, f"{path.name} cannot be read ({error})") from error
    for trial, text in rows:
        try:
            if not isinstance(text, str):
                raise ValueError("not the text of a record")
            record = TrialRecord.from_json(json.loads(text))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise WarmStartError(
                folder,
                f"trial {trial} cannot be read ({type(error).__name__});"
                " the file is damaged or was written by another version",
            ) from error
        if record.duplicate_of is None:
            yield record


def _opened(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise sqlite3.OperationalError("no such file")
    journal = path.with_name(f"{path.name}-wal")
    # Without a journal nobody is writing: nothing beside the file is needed, nor made in a folder of someone else.
    is_whole = not journal.exists() or journal.stat().st_size == 0
    options = "mode=ro&immutable=1" if is_whole else "mode=ro"
    connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?{options}", uri=True, timeout=10.0)
    left = MAX_STEPS

    def is_enough() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    connection.set_progress_handler(is_enough, 1000)
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _check_tables(connection: sqlite3.Connection) -> None:
    """A view or a virtual table in place of a table would run code of whoever wrote the file."""
    for name in ("nas_trials", "nas_meta"):
        made = connection.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", (name,)).fetchall()
        if [kind for kind, _ in made] != ["table"] or not str(made[0][1]).upper().startswith("CREATE TABLE"):
            raise sqlite3.DatabaseError(f"no table {name}")
    version = connection.execute("SELECT content FROM nas_meta WHERE name = 'schema_version'").fetchone()
    if version != (str(SCHEMA_VERSION),):
        raise sqlite3.DatabaseError(f"not of ledger version {SCHEMA_VERSION}")


def _scored(record: TrialRecord, folder: Path, space: SearchSpace, task: Task) -> tuple[dict[str, Any], float]:
    """The choices of a scored candidate, and its value."""
    score, candidate = record.score, record.candidate
    assert score is not None, "only scored trials were asked for, and a record without a score is refused as damaged"
    is_number = (
        isinstance(score.value, int | float) and not isinstance(score.value, bool) and math.isfinite(score.value)
    )
    if not is_number or score.metric != task.metric or score.split != "val":
        raise WarmStartError(
            folder,
            f"trial {record.trial} has {str(score.value)[:20]} {str(score.metric)[:20]} on"
            f" {str(score.split)[:10]}; allowed: a finite {task.metric} on val",
        )
    try:
        return dict(space.choices_of(candidate)), float(score.value)
    except (CandidateError, TypeError, ArithmeticError) as error:
        raise WarmStartError(
            folder, f"trial {record.trial} is no network of space {space.name!r} version {space.version}: {error}"
        ) from error


def _thinned(scored: Sequence[tuple[dict[str, Any], float]]) -> list[tuple[dict[str, Any], float]]:
    """All, or of more than `MAX_TAKEN` the best half and a random rest."""
    ordered = sorted(scored, key=lambda pair: -pair[1])
    best, rest = ordered[: MAX_TAKEN // 2], ordered[MAX_TAKEN // 2 :]
    return best + random.Random(0).sample(rest, min(len(rest), MAX_TAKEN - MAX_TAKEN // 2))
