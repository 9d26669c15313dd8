from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from optuna.trial import TrialState

from nas.config import load_config
from nas.front import hypervolume
from nas.ledger import Ledger
from nas.search.fellow_workers import FellowWorkers
from nas.search.patience import can_share, is_away
from nas.search.progress import Silent
from nas.search.study import open_optuna_study
from nas.trial import Outcome, TrialRecord
from tests.nas_tests.search import postgres
from tests.nas_tests.search.small_studies import configure, run

NUM_TRIALS = 16

WORKER = """
import sys, time
from pathlib import Path
import nas.search.fellow_workers as fellow_workers
fellow_workers.HEARTBEAT_S, fellow_workers.GRACE_S, fellow_workers.WAIT_S = 1, 4, 0.2
from nas.config import load_config
from nas.search.loop import run_search, settle_budgets
from nas.search.progress import Silent
from nas.search.study import open_ledger, open_optuna_study
from nas.search.testing import FakeWorkbench, plausible
from tests.nas_tests.search.small_studies import LARGE

url, folder, pause_s, num_trials = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
folder.mkdir(exist_ok=True)
config = load_config(overrides={"output.out": folder, "output.storage": url, "search.trials": num_trials,
                                "search.budgets": ["infer=12ms"]})

def called(stage, candidate_id):
    print(stage, candidate_id, flush=True)
    if stage == "train":
        time.sleep(pause_s)

class Watcher(Silent):
    def note(self, text):
        print("note", text, flush=True)

with open_ledger(config) as ledger, open_optuna_study(config, "maximize") as study:
    ledger.on_wait = Watcher().note
    bench = FakeWorkbench(folder=folder, ledger=ledger, script=plausible, on_call=called)
    bench.budgets, _ = settle_budgets(config, LARGE, ledger, bench, Watcher())
    print("ended", run_search(config, LARGE, study, ledger, bench, Watcher()), flush=True)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[postgres.Server]:
    with postgres.server(tmp_path_factory.mktemp("postgres")) as running:
        yield running


@pytest.fixture
def url(server: postgres.Server, request: pytest.FixtureRequest) -> str:
    """A database of its own for each test."""
    name = f"study_{abs(hash(request.node.name))}"
    engine = sa.create_engine(server.url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.url.rpartition("/")[0] + f"/{name}"


def start_worker(url: str, folder: Path, *, pause_s: float, trials: int = NUM_TRIALS) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", WORKER, url, str(folder), str(pause_s), str(trials)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def wait_for(process: subprocess.Popen[str], word: str) -> list[str]:
    """The lines up to the first one with this word."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if word in line:
            return lines
    assert process.stderr is not None
    raise AssertionError(f"ended without {word!r}: {process.stderr.read()}")


def volume(records: tuple[TrialRecord, ...]) -> float:
    points = [
        (record.score.value, dict(record.cost.latencies)["infer"].latency_ms)
        for record in records
        if record.score is not None and record.cost is not None
    ]
    return hypervolume(points, [0.5, 12.0], ["maximize", "minimize"])


def test_four_workers_of_which_one_is_killed_equal_a_single_one(url: str, tmp_path: Path) -> None:
    victim = start_worker(url, tmp_path / "victim", pause_s=600)
    killed_at = wait_for(victim, "train")[-1].split()[1]
    others = [start_worker(url, tmp_path / f"worker{number}", pause_s=0.1) for number in range(3)]
    time.sleep(1)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    said = [process.communicate(timeout=240) for process in others]
    assert [process.returncode for process in others] == [0, 0, 0], said
    lines = [line for out, _ in said for line in out.splitlines()]
    assert sum(line.startswith("ended all") for line in lines) == 3

    config = load_config(overrides={"output.out": tmp_path / "look", "output.storage": url})
    with Ledger(config.storage_url) as ledger, open_optuna_study(config, "maximize") as study:
        records, events = ledger.records(), ledger.events()
        trials = study.get_trials(deepcopy=False)
        weights = [stage.stage for record in records for stage in ledger.stages(record.trial)]
    # Every trial is accounted for: a record, or an event that says why there is none.
    lost = [event.detail["trial"] for event in events if event.kind == "worker_lost"]
    elsewhere = [event.detail["trial"] for event in events if event.kind == "claimed_elsewhere"]
    assert sorted([*(record.trial for record in records), *lost, *elsewhere]) == [trial.number for trial in trials]
    assert not [trial for trial in trials if not trial.state.is_finished()]
    # The lost trial was run again, once.
    assert len(lost) == 1
    again = [trial.number for trial in trials if trial.system_attrs.get("failed_trial") == lost[0]]
    assert len(again) == 1
    (record,) = [record for record in records if record.trial == again[0]]
    assert (record.candidate.candidate_id, record.outcome) == (killed_at, Outcome.SCORED)
    # No candidate was trained twice.
    trained = Counter(line.split()[1] for line in lines if line.startswith("train"))
    assert set(trained.values()) == {1}
    assert weights.count("weights") == weights.count("train") == len(trained), "any worker can measure the winners"

    from nas.search.testing import plausible
    from tests.nas_tests.search.small_studies import LARGE

    alone = run(
        configure(tmp_path / "alone", trials=NUM_TRIALS, budgets=["infer=12ms"], sampler="budget"),
        space=LARGE,
        script=plausible,
    )
    assert NUM_TRIALS <= len([each for each in records if each.duplicate_of is None]) <= NUM_TRIALS + 3
    assert volume(records) > 0.9 * volume(alone.records)


def test_a_search_waits_for_a_database_that_goes_away_and_says_so(tmp_path: Path) -> None:
    with postgres.server(tmp_path / "server") as running:
        worker = start_worker(running.url, tmp_path / "worker", pause_s=0.05, trials=8)
        wait_for(worker, "train")
        running.stop()
        wait_for(worker, "does not answer; waiting for it")
        running.start()
        rest, error = worker.communicate(timeout=120)
        assert worker.returncode == 0, error
        assert "answers again after" in rest
        assert "ended all 8 trials are done" in rest


def test_weights_that_another_worker_trained_are_fetched(url: str, tmp_path: Path) -> None:
    worker = start_worker(url, tmp_path / "there", pause_s=0.0, trials=3)
    worker.communicate(timeout=120)
    config = load_config(overrides={"output.out": tmp_path / "here", "output.storage": url})
    with Ledger(config.storage_url) as ledger, open_optuna_study(config, "maximize") as study:
        fellows = FellowWorkers.of(config, study, ledger, Silent())
        fellows.fetch_weights(lambda trial: tmp_path / "here" / f"trial-{trial}")
        scored = [record.trial for record in ledger.records() if record.outcome is Outcome.SCORED]
    assert scored
    for trial in scored:
        there = tmp_path / "there" / "weights" / f"trial-{trial:05d}" / "weights.pt"
        assert (tmp_path / "here" / f"trial-{trial}" / "weights.pt").read_bytes() == there.read_bytes()


def test_sqlite_serves_one_process_and_its_errors_are_final(tmp_path: Path) -> None:
    config = configure(tmp_path / "study")
    with Ledger(config.storage_url) as ledger, open_optuna_study(config, "maximize") as study:
        fellows = FellowWorkers.of(config, study, ledger, Silent())
        assert not fellows.are_possible
        assert not can_share(config.storage_url)

        def broken() -> None:
            raise sa.exc.OperationalError("SELECT", {}, Exception("disk is full"))

        with pytest.raises(sa.exc.OperationalError):
            fellows.patiently(broken)
        trial = study.ask()
        before = set(threading.enumerate())  # threads of other tests' pools may still be there
        with fellows.heartbeat(trial):
            assert set(threading.enumerate()) <= before
        assert fellows.claim(trial, "abc")
        fellows.retry_lost()
        assert study.trials[0].state is TrialState.RUNNING


def test_only_a_connection_that_broke_counts_as_away() -> None:
    inner = sa.exc.OperationalError("SELECT", {}, Exception("server closed the connection"))
    try:
        raise ValueError("outer") from inner
    except ValueError as error:
        assert is_away(error)
    assert not is_away(ValueError("a bug"))
    assert not is_away(sa.exc.IntegrityError("INSERT", {}, Exception("duplicate key")))
