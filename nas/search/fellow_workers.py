"""Several processes on one study: heartbeats, lost workers, claims on candidates, and a database that goes away.

PostgreSQL serves any number of processes on any number of machines. SQLite serves one: its locks do
not hold across machines, and a process that takes up the trials of a killed one cannot tell it from a
process that runs elsewhere.
"""

from __future__ import annotations

import base64
import contextlib
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nas.config import StudyConfig
from nas.ledger import Ledger, LedgerError
from nas.report.atomic import write_atomic
from nas.search.patience import can_share, patiently
from nas.search.progress import Watcher
from nas.training.trainer import WEIGHTS_FILE
from nas.trial import Outcome, TrialRecord

if TYPE_CHECKING:
    import optuna
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial

Answer = TypeVar("Answer")

HEARTBEAT_S = 15
GRACE_S = 60
"""A trial without a sign of life for this long is lost: its worker was killed, or its machine is gone."""

MAX_RETRIES = 1
"""A trial that took a second worker with it is not tried a third time."""

MAX_SHARED_BYTES = 64 << 20
"""Larger weights stay with the worker that trained them."""

WAIT_S = 1.0


@dataclass(slots=True)
class FellowWorkers:
    """What this process does about the others.

    Attributes:
        study, ledger, watcher: of the study.
        are_possible: False on SQLite; everything here then does nothing.
        sleep: waits so many seconds.
    """

    study: optuna.Study
    ledger: Ledger
    watcher: Watcher
    are_possible: bool
    sleep: Callable[[float], None] = time.sleep

    @classmethod
    def of(cls, config: StudyConfig, study: optuna.Study, ledger: Ledger, watcher: Watcher) -> FellowWorkers:
        """For a study as it is configured."""
        return cls(study, ledger, watcher, can_share(config.storage_url))

    def patiently(self, work: Callable[[], Answer]) -> Answer:
        """Does what needs the database, see `patience`. SQLite does not go away: its errors are final."""
        if not self.are_possible:
            return work()
        return patiently(work, self.ledger.url, self.watcher.note, self.sleep)

    def ask(self) -> optuna.Trial:
        """The next trial: one that waits, or a new one."""
        with warnings.catch_warnings():
            # Optuna expects heartbeats within its own loop only; here they come from `heartbeat`.
            warnings.filterwarnings("ignore", message="Heartbeat of storage")
            return self.patiently(self.study.ask)

    @contextlib.contextmanager
    def heartbeat(self, trial: optuna.Trial) -> Iterator[None]:
        """Signs of life from a thread, as long as the trial is at work."""
        if not self.are_possible:
            yield
            return
        stop = threading.Event()
        thread = threading.Thread(target=self._beat, args=(trial._trial_id, stop), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _beat(self, trial_id: int, stop: threading.Event) -> None:
        storage = self._storage()
        while True:
            # A database that is away for a while must not end the signs of life.
            with contextlib.suppress(*_away_errors()):
                storage.record_heartbeat(trial_id)
            storage.remove_session()
            if stop.wait(HEARTBEAT_S):
                return

    def retry_lost(self) -> None:
        """Puts the trials of lost workers back in line, each at most `MAX_RETRIES` times, by whoever sees it first."""
        if not self.are_possible:
            return
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        storage = self._storage()
        for frozen in self._lost():
            try:
                is_mine = storage.set_trial_state_values(frozen._trial_id, state=TrialState.FAIL)
            except UpdateFinishedTrialError:
                continue  # another worker was quicker
            if is_mine:
                self._retry(frozen)

    def _lost(self) -> list[FrozenTrial]:
        from optuna.trial import TrialState

        storage = self._storage()
        stale = set(storage._get_stale_trial_ids(self.study._study_id))
        running = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [trial for trial in running if trial._trial_id in stale or self._never_began(trial)]

    def _never_began(self, trial: FrozenTrial) -> bool:
        """Its worker was lost between asking and the first sign of life, which Optuna does not notice."""
        storage = self._storage()
        age_s = (datetime.now() - (trial.datetime_start or datetime.now())).total_seconds()
        if age_s < GRACE_S:
            return False
        import sqlalchemy as sa

        query = sa.text("SELECT count(*) FROM trial_heartbeats WHERE trial_id = :trial")
        with storage.engine.connect() as connection:
            return connection.execute(query, {"trial": trial._trial_id}).scalar() == 0

    def _retry(self, lost: FrozenTrial) -> None:
        from optuna.trial import TrialState, create_trial

        history = [*lost.system_attrs.get("retry_history", []), lost.number]
        is_retried = len(history) <= MAX_RETRIES
        self.ledger.add_event("worker_lost", {"trial": lost.number, "is_retried": is_retried})
        self.watcher.note(
            f"trial {lost.number}: its worker gave no sign of life for {GRACE_S} s;"
            + (" it is run again" if is_retried else " it was run twice, and is left")
        )
        if is_retried:
            kept = {key: value for key, value in lost.system_attrs.items() if not key.startswith("constraints")}
            self.study.add_trial(
                create_trial(
                    state=TrialState.WAITING,
                    params=lost.params,
                    distributions=lost.distributions,
                    user_attrs=lost.user_attrs,
                    system_attrs={**kept, "failed_trial": history[0], "retry_history": history},
                )
            )

    def claim(self, trial: optuna.Trial, candidate_id: str) -> bool:
        """Whether this trial may evaluate the candidate: nobody else is at it.

        When somebody is, the trial ends as failed without a record, and costs nothing.
        """
        if not self.are_possible:
            return True
        from optuna.trial import TrialState

        holder = self.patiently(lambda: self.ledger.claim(candidate_id, trial.number))
        if holder == trial.number:
            return True
        # A trial that ended without a record in the ledger gives its claim up: it was lost, or the machine failed.
        states = {each.number: each.state for each in self.patiently(lambda: self.study.get_trials(deepcopy=False))}
        is_over = states.get(holder) in (TrialState.FAIL, TrialState.WAITING)
        if is_over and self.patiently(lambda: self.ledger.take_over(candidate_id, trial.number, holder)):
            return True
        detail = {"trial": trial.number, "candidate_id": candidate_id, "held_by": holder}
        self.patiently(lambda: self.ledger.add_event("claimed_elsewhere", detail))
        self.patiently(lambda: self.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True))
        return False

    def share_weights(self, record: TrialRecord, folder: Path) -> None:
        """Puts a scored trial's weights into the database, for whichever worker measures the winners."""
        if not self.are_possible or record.outcome is not Outcome.SCORED or record.duplicate_of is not None:
            return
        path = folder / WEIGHTS_FILE
        if path.is_file() and path.stat().st_size <= MAX_SHARED_BYTES:
            payload = {"name": path.name, "content": base64.b64encode(path.read_bytes()).decode()}
            self.patiently(lambda: self.ledger.record_stage(record.trial, "weights", payload, 0.0))

    def fetch_weights(self, weights_folder: Callable[[int], Path]) -> None:
        """Writes the weights that other workers trained to where this one looks for them."""
        if not self.are_possible:
            return
        for record in self.ledger.records():
            folder = weights_folder(record.trial)
            if (
                record.outcome is not Outcome.SCORED
                or record.duplicate_of is not None
                or (folder / WEIGHTS_FILE).is_file()
            ):
                continue
            for stage in self.ledger.stages(record.trial):
                if stage.stage == "weights":
                    folder.mkdir(parents=True, exist_ok=True)
                    write_atomic(folder / Path(stage.payload["name"]).name, base64.b64decode(stage.payload["content"]))

    def wait_for_room(self, num_trials: int) -> bool:
        """False when the trials that others are at would complete the study; it has then waited a moment.

        Not before they have ended is it known that none of them was lost.
        """
        if not self.are_possible:
            return True
        num_tried = self.patiently(self.ledger.num_tried)
        num_running = self.patiently(self.num_running)
        if num_running == 0 or num_tried + num_running < num_trials:
            return True
        self.watcher.stage("other workers")
        self.sleep(WAIT_S)
        self.patiently(self.retry_lost)
        return False

    def num_running(self) -> int:
        """Trials that any process is at."""
        from optuna.trial import TrialState

        return len(self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)))

    def _storage(self) -> RDBStorage:
        """Optuna's own storage behind its cache."""
        from optuna.storages import RDBStorage

        storage = self.study._storage
        backend = getattr(storage, "_backend", storage)
        assert isinstance(backend, RDBStorage)
        return backend


def _away_errors() -> tuple[type[BaseException], ...]:
    import sqlalchemy as sa
    from optuna.exceptions import StorageInternalError

    return (StorageInternalError, sa.exc.DBAPIError, LedgerError)
