"""A study on disk: its folder, its lock, its two halves of one database, and what identifies it."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas.config import StudyConfig, differences, identity, without_secrets
from nas.front import Direction
from nas.ledger import Ledger, shown_url
from nas.report.atomic import write_atomic
from nas.search.study_lock import LOCK_NAME, StudyError, locked

if TYPE_CHECKING:
    import optuna
    from optuna.storages import RDBStorage

    from nas.training.task import Task
    from profilers.device import DeviceSpec

MANIFEST_NAME = "manifest.json"
DATABASE_NAME = "study.db"
STUDY_NAME = "nas"


@contextlib.contextmanager
def open_folder(config: StudyConfig, *, fresh: bool) -> Iterator[Path]:
    """The study's folder, held by this process alone.

    A folder that was made here and has nothing in it at the end is taken away again.

    Args:
        config: the study at hand; a folder of another one is refused.
        fresh: move the study that is there aside (nothing is deleted) and start anew.

    Raises:
        StudyError: the folder holds another study, something else, or is in use.
    """
    folder = config.results_dir
    if fresh:
        _move_aside(folder, config)
    _refuse_foreign(folder, config)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(f"results folder {folder}: {error.strerror}; choose another with --out") from error
    except ValueError as error:  # a NUL in the name
        raise StudyError(f"results folder {str(folder)!r}: {error}; choose another with --out") from error
    try:
        with _locked(folder), _database_locked(config):
            yield folder
    finally:
        if made:
            _remove_empty(made)


def _move_aside(folder: Path, config: StudyConfig) -> None:
    if config.output.storage is not None:
        raise StudyError(
            f"--fresh moves a results folder aside, but this study is in {without_secrets(config).output.storage};"
            " give another --storage (and --out) to start anew"
        )
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not any((folder / name).exists() for name in (MANIFEST_NAME, DATABASE_NAME)):
        return  # no study: what `_refuse_foreign` says holds for --fresh as well
    if Path.cwd().is_relative_to(folder.resolve()):
        raise StudyError(f"results folder {folder}: --fresh cannot move the current folder; run from another one")
    stem = f"{folder.name}.before-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    names = (stem if number == 1 else f"{stem}-{number}" for number in itertools.count(1))
    aside = next(path for path in map(folder.with_name, names) if not path.exists())
    with _locked(folder):
        folder.rename(aside)


def _remove_empty(made: list[Path]) -> None:
    """Takes folders away, the innermost first, unless they hold more than the lock's file."""
    with contextlib.suppress(OSError):
        if [entry.name for entry in made[0].iterdir()] == [LOCK_NAME]:
            (made[0] / LOCK_NAME).unlink()
        for path in made:
            path.rmdir()


def _refuse_foreign(folder: Path, config: StudyConfig) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise StudyError(f"results folder {folder}: is a file; choose another with --out")
    manifest = folder / MANIFEST_NAME
    if not manifest.exists():
        # What a study leaves that was killed before its manifest was there: lock, database with its
        # journals, and half a manifest.
        left = (LOCK_NAME, DATABASE_NAME, f".{MANIFEST_NAME}.")
        foreign = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith(left))
        if foreign:
            raise StudyError(
                f"results folder {folder}: holds files but no study (first: {foreign[0]});"
                " choose an empty one with --out"
            )
        return
    try:
        stored = json.loads(manifest.read_text())["identity"]
        changed = differences(stored, identity(config))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise StudyError(
            f"{manifest}: cannot be read ({type(error).__name__}: {error}); choose another folder with --out,"
            " or --fresh to move this one aside"
        ) from error
    if changed:
        raise StudyError(
            f"results folder {folder} holds another study: {'; '.join(changed)}."
            " Use --out for another folder, or --fresh to move this one aside and start anew"
        )

    database = folder / DATABASE_NAME
    if config.output.storage is None and not (database.is_file() and database.stat().st_size > 0):
        raise StudyError(
            f"{database}: missing or empty, although {MANIFEST_NAME} is there; restore it, or use --fresh to move"
            " the folder aside and start anew"
        )
    winners = folder / "winners"
    if winners.is_symlink():
        raise StudyError(f"{winners}: is a link; winners are replaced, so it must be a folder of its own")


def _locked(folder: Path) -> contextlib.AbstractContextManager[None]:
    return locked(folder / LOCK_NAME, f"results folder {folder}")


def _database_locked(config: StudyConfig) -> contextlib.AbstractContextManager[None]:
    """Holds an SQLite file that is not in the results folder, whose lock would not keep others from it."""
    import sqlalchemy as sa

    if config.output.storage is None or not config.storage_url.startswith("sqlite"):
        return contextlib.nullcontext()
    try:
        name = sa.make_url(config.storage_url).database
    except (sa.exc.ArgumentError, ValueError):
        name = None  # the ledger says what is wrong with it
    path = Path(name or "")
    if not name or name.startswith((":", "file:")) or not path.parent.is_dir():
        return contextlib.nullcontext()
    return locked(path.with_name(f"{path.name}{LOCK_NAME}"), str(path))


def open_ledger(config: StudyConfig) -> Ledger:
    """The study's ledger, claimed for this configuration.

    Raises:
        LedgerError: not a database, not reachable, locked or full.
        StudyError: the database belongs to another study.
    """
    from nas.search.patience import PatientLedger, can_share

    ledger = (PatientLedger if can_share(config.storage_url) else Ledger)(config.storage_url)
    stored = ledger.start(json.loads(without_secrets(config).model_dump_json()), identity(config))
    changed = differences(stored.identity, identity(config))
    if changed:
        ledger.close()
        raise StudyError(f"{ledger.url} holds another study: {'; '.join(changed)}. Use --storage or --out for another")
    return ledger


@contextlib.contextmanager
def open_optuna_study(config: StudyConfig, direction: Direction) -> Iterator[optuna.Study]:
    """Optuna's half of the database: quality first, latency second. Closed at the end, as the ledger is.

    Raises:
        StudyError: (from within the block as well) the database cannot be used; one line.
    """
    import optuna
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import OperationalError

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with contextlib.ExitStack() as stack:
        try:
            storage = _storage_of(config.storage_url)
            # SQLite folds its write-ahead log into the file only when the last connection closes.
            stack.callback(storage.engine.dispose)
            stack.callback(storage.remove_session)
            study = optuna.create_study(
                storage=storage, study_name=STUDY_NAME, directions=[direction, "minimize"], load_if_exists=True
            )
            _read_trials(study)
            yield study
        except (StorageInternalError, OperationalError) as error:
            cause = error.__cause__ if isinstance(error, StorageInternalError) else error
            reason = str(getattr(cause, "orig", cause)).strip().partition("\n")[0]
            raise StudyError(
                f"{shown_url(config.storage_url)}: Optuna cannot use its tables ({reason}); check that the disk has"
                " space and the database answers, then run the same command again: finished work is kept"
            ) from error


def _read_trials(study: optuna.Study) -> None:
    """Fills Optuna's cache of finished trials, which then reads new ones only.

    Thousands of trials are millions of small objects that all stay: looking for garbage among them took half of the
    time, here and in each later collection.
    """
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        study.get_trials(deepcopy=False)
    finally:
        if was_collecting:
            gc.enable()
    gc.freeze()


def _storage_of(url: str) -> RDBStorage:
    from optuna.storages import RDBStorage

    from nas.search.fellow_workers import GRACE_S, HEARTBEAT_S
    from nas.search.patience import can_share
    from nas.search.sampler import without_experimental_warnings

    if not can_share(url):
        return RDBStorage(url, engine_kwargs={"connect_args": {"timeout": 30.0}})
    with without_experimental_warnings():
        # pre_ping: a connection of the pool may be of a server that was restarted since.
        return RDBStorage(
            url, engine_kwargs={"pool_pre_ping": True}, heartbeat_interval=HEARTBEAT_S, grace_period=GRACE_S
        )


def write_manifest(folder: Path, config: StudyConfig, task: Task, device: DeviceSpec, extra: dict[str, Any]) -> None:
    """Everything needed to say what this study was and to run it again."""
    manifest = {
        "identity": identity(config),
        "config": json.loads(without_secrets(config).model_dump_json()),
        "device": {
            "id": device.id,
            "fingerprint": device.fingerprint,
            "target": device.target,
            "cores": list(device.cores),
            "num_threads": device.num_threads,
            "runtimes": dict(device.runtimes),
            "facts": dict(device.facts),
        },
        "task": {
            "name": task.name,
            "fingerprint": task.fingerprint,
            "num_train": len(task.train),
            "num_val": len(task.val),
            "num_test": len(task.test),
            **task.facts(),
        },
        "versions": dict(versions()),
        "git": _git_state(),
        "command": command_line(),
        **extra,
    }
    write_atomic(folder / MANIFEST_NAME, json.dumps(manifest, indent=1, sort_keys=True).encode())


def versions() -> tuple[tuple[str, str], ...]:
    """(name, version) of what decides a study's numbers."""
    from importlib.metadata import version

    import nas

    names = ("torch", "optuna", "apache-tvm", "apache-tvm-ffi", "onnx", "onnxruntime", "numpy", "scikit-learn")
    python = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    return (("nas", nas.__version__), ("python", python), *((name, version(name)) for name in names))


def command_line() -> str:
    """The command that was typed, for people to type again; the password of a storage URL is masked."""
    import shlex

    from nas.ledger import shown_url

    words, is_storage = [Path(sys.argv[0]).name], False
    for word in sys.argv[1:]:
        option, separator, value = word.partition("=")
        if is_storage:
            word = shown_url(word)
        elif option == "--storage" and separator:
            word = f"{option}={shown_url(value)}"
        is_storage = word == "--storage"
        words.append(word)
    return shlex.join(words)


def _git_state() -> dict[str, str] | None:
    """Commit and cleanliness of the code that ran; None when it is not in a repository."""
    package = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(package), *arguments], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        # Installed into an environment within someone's repository, the code is not that repository's.
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return {"commit": git("rev-parse", "HEAD"), "dirty": str(bool(git("status", "--porcelain", "-uno")))}
    except (OSError, subprocess.SubprocessError):
        return None
