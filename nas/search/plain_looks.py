"""Winners in the phases that their study does not time: one look each, for the curve over context lengths.

Nothing is held against what is seen here: no budget names these phases, no gate asks for them, and a failure is a
note beside the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nas.compile.tvm import CompileFailure
from nas.ledger import Ledger
from nas.search.finalists import Finalist
from nas.search.progress import Watcher
from nas.search.second_look import FinalistBench, PhaseLook
from nas.search.winner_measurements import remember_plain_look, remembered_plain_look
from profilers.errors import ProfileFailure


def look_at_other_phases(
    finalists: Sequence[Finalist],
    phases: Sequence[str],
    bench: FinalistBench,
    ledger: Ledger,
    watcher: Watcher,
) -> tuple[Finalist, ...]:
    """The finalists with a look at each phase that is not among the bench's.

    Args:
        finalists: the settled front.
        phases: all phases of the space.
        bench: the tools; its phases are those that the study times.
        ledger: what an earlier run saw is taken from it.
        watcher: told how far it is.
    """
    others = [phase for phase in phases if phase not in bench.phases]
    done = []
    for number, finalist in enumerate(finalists if others else ()):
        watcher.stage("other phases", number, len(finalists))
        seen = [_plain_look(finalist, phase, bench, ledger) for phase in others]
        looks = tuple(each for each in seen if isinstance(each, PhaseLook))
        done.append(replace(finalist, plain_looks=looks, remarks=tuple(each for each in seen if isinstance(each, str))))
    return tuple(done) if others else tuple(finalists)


def _plain_look(finalist: Finalist, phase: str, bench: FinalistBench, ledger: Ledger) -> PhaseLook | str:
    candidate, weights = finalist.record.candidate, finalist.weights
    compiled = bench.compile(candidate, phase, weights.path)
    if isinstance(compiled, CompileFailure):
        return f"{phase}: not compiled: {compiled.reason}"
    artifact = compiled.artifact
    measurement = remembered_plain_look(ledger, finalist.record.trial, artifact)
    if measurement is None:
        seen, _ = bench.measure(artifact)
        estimate = seen if isinstance(seen, ProfileFailure) else seen.estimate()
        if isinstance(seen, ProfileFailure) or isinstance(estimate, ProfileFailure):
            assert isinstance(estimate, ProfileFailure)
            return f"{phase}: not measured: {estimate.kind}: {estimate.reason}"
        remember_plain_look(ledger, finalist.record.trial, artifact, seen)
        measurement = seen
    # No ONNX file: it takes longer than the look, and `nas export` makes one of any phase from the winner's folder.
    return PhaseLook(artifact=artifact, exported=None, measurement=measurement, other=None, is_plain=True)
