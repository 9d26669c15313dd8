"""The parts of the bench: each yields one row an observation, and can be gone on with later."""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nas.bench.measurement.rig import Rig, busy_process, core_hog, measured, memory_hog
from nas.bench.result import Cell
from profilers.aa import Pair, measure_pair
from profilers.artifact import Artifact
from profilers.intervals import bootstrap_interval, process_t_interval, t_interval
from profilers.measurement import FINALIST, SEARCH, Block, Measurement
from profilers.statistics import medians_by_process

Row = dict[str, Cell]

MAX_FOREIGN_SHARE = 0.05
"""Share of a processor that others may have while a run still counts as quiet: kernel threads, a shell."""

_WIDE_EVERY = 5
_MAX_ATTEMPTS = 2
"""Observations that do not count are made again, up to this many times as many as were asked for."""

LOOK = replace(SEARCH, max_blocks_per_process=SEARCH.blocks_per_process)
"""A first look without the stop rule, which would look longer at noisy programs: the same time for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Observations of each part; `baselines` are quiet runs before anybody disturbs, as what the
    canaries take here must be known."""

    aa: int = 200
    apart: int = 40
    hogs: int = 40
    quiet: int = 40
    coverage: int = 60
    speed: int = 5
    baselines: int = 5


QUICK = Counts(aa=4, apart=2, hogs=2, quiet=2, coverage=6, speed=1, baselines=1)


def aa_rows(rig: Rig, counts: Counts, known: Sequence[Row]) -> Iterator[Row]:
    """A program against itself beside one busy process, until so many pairs were not rejected."""
    profiler = rig.profiler()
    num_valid = sum(row["rejected_because"] is None for row in known)
    for number in range(len(known), _MAX_ATTEMPTS * counts.aa):
        if num_valid >= counts.aa:
            return
        artifact = rig.wide if number % _WIDE_EVERY == 0 else rig.chain  # the wide one takes twice as long
        with rig.watch() as watch, busy_process():
            pair = measure_pair(profiler, artifact, artifact, noise=rig.noise)
        num_valid += pair.comparison is not None
        yield _pair_row(number, artifact, pair, rig) | {"foreign_share": watch.share}


def apart_rows(rig: Rig, counts: Counts, known: Sequence[Row]) -> Iterator[Row]:
    """A program against one with 3% more work, until so many pairs were not rejected."""
    profiler = rig.profiler()
    num_valid = sum(row["rejected_because"] is None for row in known)
    for number in range(len(known), _MAX_ATTEMPTS * counts.apart):
        if num_valid >= counts.apart:
            return
        with rig.watch() as watch:
            pair = measure_pair(profiler, rig.chain, rig.slower, noise=rig.noise)
        num_valid += pair.comparison is not None
        yield _pair_row(number, rig.chain, pair, rig) | {"foreign_share": watch.share}


def _pair_row(number: int, artifact: Artifact, pair: Pair, rig: Rig) -> Row:
    seen = pair.comparison
    row: Row = {"number": number, "model": _name(artifact, rig), "rejected_because": pair.rejected_because}
    if pair.first is not None and pair.second is not None:
        row["naive_differs"] = naive_differs(pair.first.blocks, pair.second.blocks)
    if seen is not None:
        row |= {"ratio": seen.ratio, "lower": seen.lower, "upper": seen.upper, "verdict": seen.verdict}
    return row


def naive_differs(first: tuple[Block, ...], second: tuple[Block, ...]) -> bool:
    """The control: mean of all runs of one process, then of another; different by more than two standard errors?

    That is what a loop around `time()` in a script comes to, with the test most people know.
    """
    a, b = (
        np.concatenate([block.latencies_ms for block in blocks if block.process == 0]) for blocks in (first, second)
    )
    error = float(np.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b)))
    return abs(float(a.mean() - b.mean())) > 1.96 * error


def hog_rows(rig: Rig, counts: Counts, known: Sequence[Row]) -> Iterator[Row]:
    """Runs beside a hog on the same core, and beside a memory hog on another; the latter moves only
    programs that live on memory, so it is beside one of those that it must be found."""
    core, other = rig.device.cores[0], rig.other_core
    disturbances: list[tuple[str, Artifact, Callable[[], contextlib.AbstractContextManager[None]]]] = [
        ("same core", rig.chain, lambda: core_hog(core))
    ]
    if other is not None:
        disturbances.append(("memory", rig.stream, lambda: memory_hog(other)))
    _learn_baselines(rig, counts.baselines)
    profiler = rig.profiler(learns=False)
    for number in range(len(known), counts.hogs):
        name, artifact, hog = disturbances[number % len(disturbances)]
        with rig.watch() as watch, hog():
            seen = measured(profiler.measure(artifact, LOOK))
        yield _run_row(number, artifact, seen, rig) | {"condition": name, "foreign_share": watch.share}


def quiet_rows(rig: Rig, counts: Counts, known: Sequence[Row]) -> Iterator[Row]:
    """Runs with nobody there."""
    _learn_baselines(rig, counts.baselines)
    profiler = rig.profiler()
    num_quiet = sum(is_quiet(row) for row in known)
    for number in range(len(known), _MAX_ATTEMPTS * counts.quiet):
        if num_quiet >= counts.quiet:
            return
        artifact = (rig.chain, rig.wide, rig.stream)[number % 3]
        with rig.watch() as watch:
            seen = measured(profiler.measure(artifact, LOOK))
        row = _run_row(number, artifact, seen, rig) | {"foreign_share": watch.share}
        num_quiet += is_quiet(row)
        yield row


def is_quiet(row: Row) -> bool:
    """Whether nobody else was there, by what the kernel says about everybody's processor time."""
    return float(row["foreign_share"] or 0) <= MAX_FOREIGN_SHARE


def coverage_rows(rig: Rig, counts: Counts, known: Sequence[Row]) -> Iterator[Row]:
    """Runs one after the other, of a program in a private cache and of one that is not; two in turn."""
    profiler = rig.profiler()
    for number in range(len(known), 2 * counts.coverage):
        artifact = rig.chain if number % 2 == 0 else rig.wide
        with rig.watch() as watch:
            seen = measured(profiler.measure(artifact, SEARCH))
        yield _run_row(number, artifact, seen, rig) | {"foreign_share": watch.share}


def speed_rows(rig: Rig, counts: Counts, known: Sequence[Row]) -> Iterator[Row]:
    """What a first look and a finalist cost."""
    profiler = rig.profiler()
    for number in range(len(known), counts.speed):
        with rig.watch() as watch:
            first = measured(profiler.measure(rig.chain, SEARCH))
            finalist = measured(profiler.measure(rig.chain, FINALIST))
        yield _run_row(number, rig.chain, first, rig) | {
            "finalist_s": finalist.duration_s,
            "foreign_share": watch.share,
        }


def rejected_example(rig: Rig) -> Measurement:
    """A run that somebody disturbs from its second second on, for a picture."""
    profiler = rig.profiler(learns=False)
    longer = replace(SEARCH, num_processes=4, max_blocks_per_process=SEARCH.blocks_per_process)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(profiler.measure, rig.chain, longer)
        time.sleep(1.5)
        with core_hog(rig.device.cores[0]):
            return measured(running.result())


def _learn_baselines(rig: Rig, num_runs: int) -> None:
    profiler = rig.profiler()
    for artifact in (rig.chain, rig.wide, rig.stream):
        for _ in range(num_runs):
            measured(profiler.measure(artifact, LOOK))


def _run_row(number: int, artifact: Artifact, seen: Measurement, rig: Rig) -> Row:
    row: Row = {
        "number": number,
        "model": _name(artifact, rig),
        "latency_ms": seen.latency_ms,
        "lower": seen.lower_ms,
        "upper": seen.upper_ms,
        "rejected_because": seen.rejected_because,
        "first_look_s": seen.duration_s,
        "child_start_s": float(dict(seen.conditions)["child_start_s"]),
    }
    groups = medians_by_process(seen.blocks)
    if seen.rejected_because is None and len(groups) > 1:
        others = {
            "blocks_t": t_interval(groups),
            "processes_t": process_t_interval(groups),
            "bootstrap": bootstrap_interval(groups, seed=number),
        }
        for name, (lower, upper) in others.items():
            row |= {f"{name}_lower": lower, f"{name}_upper": upper}
    return row


def _name(artifact: Artifact, rig: Rig) -> str:
    names = {rig.chain.digest: "chain", rig.wide.digest: "wide", rig.stream.digest: "stream"}
    return names.get(artifact.digest, "slower")


PARTS: Mapping[str, Callable[[Rig, Counts, Sequence[Row]], Iterator[Row]]] = {
    "speed": speed_rows,
    "quiet": quiet_rows,
    "hogs": hog_rows,
    "apart": apart_rows,
    "coverage": coverage_rows,
    "aa": aa_rows,
}
