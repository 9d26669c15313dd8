"""Whole studies of tiny networks in seconds: real search, training, gates and report; scripted compiler and device."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nas.config import StudyConfig, load_config
from nas.gates.result import GateResult
from nas.ledger import Ledger
from nas.search.audit_run import AuditPlan
from nas.search.pipeline import Proposal
from nas.search.progress import Silent, Watcher
from nas.search.session import StudyResult, run_study
from nas.search.testing import FakeWorkbench, Script
from nas.search.trained_weights import TrainedWeights
from nas.training import job
from nas.training.evaluate import BuildModel
from nas.training.recipe import Recipe
from nas.training.result import Rehearsal, Shuffled, TrainFailure, TrainResult
from nas.training.score import HeldOutScore
from profilers.errors import ProfileFailure
from profilers.measurement import Measurement
from search_spaces.candidate import BlockSpec, Candidate, CandidateError, TensorSpec
from search_spaces.layers import num_macs
from search_spaces.registry import SPACES
from search_spaces.space import Choices, Phase, Suggest, replay

SPACE = "tiny_convolutions"
WIDTHS = (2, 4, 8, 16, 32)
KINDS = {
    "none": None,
    "convnext": BlockSpec.of("convnext"),
    "inverted_residual": BlockSpec.of("inverted_residual", kernel=3, expansion=2),
}
RECIPE = Recipe(epochs=6, batch_size=32, learning_rate=1e-2, num_threads=1)


class TinySpace:
    """A stem and up to two blocks, 45 candidates whose quality differs widely after a second of training."""

    name: str = SPACE
    version: int = 1
    task_kind: str = "image_classification"

    def __init__(self, input: BlockSpec, head: BlockSpec) -> None:
        self.input, self.head = input, head

    def sample(self, suggest: Suggest) -> Candidate:
        """Asks for the width and two kinds of block."""
        width = suggest.choose("width", WIDTHS)
        blocks = [BlockSpec.of("stem", width=width, stride=1)]
        for name in ("first", "second"):
            block = KINDS[suggest.choose(name, tuple(KINDS))]
            blocks += [] if block is None else [block]
        return Candidate(space=SPACE, space_version=1, input=self.input, blocks=tuple(blocks), head=self.head)

    def phases(self, candidate: Candidate) -> tuple[Phase, ...]:
        """One, `infer`."""
        image = candidate.input
        shape = (1, image.integer("channels"), image.integer("height"), image.integer("width"))
        return (Phase(name="infer", inputs=(TensorSpec(name="image", shape=shape),)),)

    def encode(self, candidate: Candidate) -> tuple[float, ...]:
        """Width and number of blocks of each kind."""
        kinds = [block.kind for block in candidate.blocks]
        return (float(candidate.blocks[0].integer("width")), float(kinds.count("convnext")),
                float(kinds.count("inverted_residual")))  # fmt: skip

    def choices_of(self, candidate: Candidate) -> Choices:
        """The width and both kinds; of two spellings of one network the first."""
        for width, first, second in itertools.product(WIDTHS, KINDS, KINDS):
            choices: Choices = {"width": width, "first": first, "second": second}
            if replay(self, choices) == candidate:
                return choices
        raise CandidateError(f"candidate {candidate.candidate_id} is not of space {self.name!r} version {self.version}")

    def references(self) -> dict[str, Choices]:
        """One of middle size."""
        return {"reference": {"width": 16, "first": "inverted_residual", "second": "none"}}


@dataclass(slots=True)
class TinyBench(FakeWorkbench):
    """Trains and scores for real, in this process; compiler and device are scripted.

    Attributes:
        config: of the study.
        build: makes the network that is trained; None the space's own.
        train_instead: what trains a trial instead; None for an answer means: as usual.
        foreign: fingerprint that winners are measured with; None for this device's.
    """

    config: StudyConfig = field(default_factory=StudyConfig)
    build: BuildModel | None = None
    train_instead: Callable[[Proposal], TrainResult | TrainFailure | None] = lambda proposal: None
    foreign: str | None = None

    def __post_init__(self) -> None:
        self.recipe = self.config.training

    def train(self, proposal: Proposal, until_epoch: int | None = None) -> TrainResult | TrainFailure:
        """As a worker of a study does."""
        folder = self.weights_folder(proposal.trial)
        return self.train_instead(proposal) or self._train(
            proposal.candidate, self.recipe, self.config.search.seed, folder, until_epoch
        )

    def compare_path(self, name: str, candidate: Candidate) -> GateResult | TrainFailure:
        """As a worker of a study does."""
        return job.compare_path_job(
            name, candidate.canonical_json(), self.config.task, self.config.training, self.config.search.seed,
            self.build,
        )  # fmt: skip

    def train_apart(self, candidate: Candidate, recipe: Recipe, seed: int, folder: str) -> TrainResult | TrainFailure:
        """As a worker of an audit does."""
        return self._train(candidate, recipe, seed, self.folder / "weights" / folder)

    def _train(
        self, candidate: Candidate, recipe: Recipe, seed: int, folder: Path, until_epoch: int | None = None
    ) -> TrainResult | TrainFailure:
        return job.train_job(
            candidate.canonical_json(), self.config.task, recipe, seed, str(folder), None, self.build, until_epoch
        )

    def rehearse(self, candidate: Candidate) -> Rehearsal | TrainFailure:
        """As a worker of a study does."""
        return job.rehearse_job(
            candidate.canonical_json(), self.config.task, self.recipe, self.config.search.seed, self.build
        )

    def score_shuffled(self, candidate: Candidate, weights: TrainedWeights) -> Shuffled | TrainFailure:
        """As a worker of a study does."""
        return job.controls_job(
            candidate.canonical_json(), self.config.task, self.recipe, self.config.search.seed,
            str(weights.path), weights.sha256, self.build,
        )  # fmt: skip

    def score_test(self, candidate: Candidate, weights: Path, sha256: str) -> HeldOutScore | TrainFailure:
        """As a worker of a study does."""
        return job.score_test_job(
            candidate.canonical_json(), self.config.task, self.config.search.seed, str(weights), sha256, 1, self.build
        )

    def measure_finalist(self, artifacts: list[Any]) -> list[Measurement | ProfileFailure]:
        """The scripted latency, of another device where a fault says so."""
        seen = FakeWorkbench.measure_finalist(self, artifacts)
        if self.foreign is None:
            return seen
        return [replace(each, fingerprint=self.foreign) if isinstance(each, Measurement) else each for each in seen]


def by_work(candidate: Candidate) -> Script:
    """A latency that follows the work; 100,000 multiply-accumulates take a millisecond."""
    return Script(look=num_macs(candidate) / 1e5)


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyStudy:
    """One study to run.

    Attributes:
        folder: an empty one for its results.
        seed: of sampler, training and split.
        trials: how many.
        recipe: of its training.
        task: overrides of the section `[task]`.
        audit: proxy audit at the end; None leaves it out.
        change: what makes its bench faulty.
    """

    folder: Path
    seed: int = 0
    trials: int = 6
    recipe: Recipe = RECIPE
    task: dict[str, object] = field(default_factory=dict)
    audit: AuditPlan | None = None
    change: Callable[[TinyBench], None] = lambda bench: None


def run_tiny(study: TinyStudy) -> StudyResult:
    """Runs it from configuration to report.

    Raises:
        NasError: what stops a study, a smoke gate that fails included.
    """
    task = {"name": "digits", "max_train_examples": 400, "val_share": 0.4, "seed": study.seed} | study.task
    search = {
        "space": SPACE,
        "trials": study.trials,
        "sampler": "random",
        "seed": study.seed,
        "budgets": ["infer=50ms"],
    }
    config = load_config(
        overrides={
            **{f"task.{name}": value for name, value in task.items()},
            **{f"search.{name}": value for name, value in search.items()},
            "output.out": study.folder,
        }
    ).model_copy(update={"training": study.recipe})

    def make(config: StudyConfig, folder: Path, ledger: Ledger, phases: tuple[str, ...], watcher: Watcher) -> TinyBench:
        bench = TinyBench(folder=folder, ledger=ledger, script=by_work, phases=phases, config=config)
        study.change(bench)
        return bench

    with tiny_space():
        return run_study(
            config, fresh=False, accept_failures=None, watcher=Silent(), audit=study.audit,
            make_bench=make,  # type: ignore[arg-type]
        )  # fmt: skip


@contextmanager
def tiny_space() -> Iterator[None]:
    """Makes the space known for as long as a study of it runs."""
    SPACES[SPACE] = TinySpace
    try:
        yield
    finally:
        del SPACES[SPACE]
