"""The A/A gate of `nas doctor`: short to look, or long enough to store a noise floor."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from nas.doctor.devices import noise_text
from nas.doctor.finding import Finding
from profilers.aa import (
    GATE_PAIRS,
    LEAST_PAIRS_TO_STORE,
    Pair,
    aa_result,
    enrolled,
    passes,
    run_aa,
)
from profilers.device import DeviceSpec
from profilers.enrolment import EnrolmentStore
from profilers.local import LocalProfiler
from profilers.lock import device_lock

_SHORT_PAIRS = 3


def check_noise(
    device: DeviceSpec,
    store: EnrolmentStore,
    num_pairs: int | None,
    lock_timeout_s: float,
    note: Callable[[str], None],
) -> Finding:
    """Compares a reference network with itself; stores the floor when there were pairs enough.

    Args:
        device: this machine.
        store: where the floor goes.
        num_pairs: None for a short look, which stores nothing.
        lock_timeout_s: how long to wait for another user of the device.
        note: told about the progress, every ten pairs.
    """
    from nas.profile.reference_model import make_chain

    wanted = num_pairs or _SHORT_PAIRS

    def tell(done: int, total: int) -> None:
        if done % 10 == 0 and total > _SHORT_PAIRS:
            note(f"A/A pair {done} of {total}")

    with tempfile.TemporaryDirectory(prefix="nas-doctor-") as scratch:
        Path(scratch).chmod(0o755)
        artifact = make_chain(Path(scratch) / "chain", num_threads=device.num_threads)
        profiler = LocalProfiler(num_threads=device.num_threads, lock_timeout_s=lock_timeout_s, on_wait=note)
        pairs = run_aa(profiler, artifact, wanted, on_pair=tell)
    if all(pair.comparison is None for pair in pairs):
        reason = pairs[-1].rejected_because
        text = f"nothing could be measured: {reason}"
        return Finding(name="noise", state="warning" if num_pairs is None else "bad", text=text)
    if num_pairs is not None and num_pairs >= LEAST_PAIRS_TO_STORE:
        with device_lock(device.id, timeout_s=lock_timeout_s):
            store.save(enrolled(store.load(device), pairs))
    return noise_finding(pairs, store, device, is_gate=num_pairs is not None)


def noise_finding(pairs: list[Pair], store: EnrolmentStore, device: DeviceSpec, *, is_gate: bool) -> Finding:
    """The finding for measured pairs; a short look is never more than a warning."""
    result = aa_result(pairs)
    seen = (
        f"{result.num_false_alarms} false alarms in {result.num_pairs} A/A pairs, {result.num_rejected} rejected,"
        f" 95th percentile gap {result.gap95:.2%}"
    )
    figures = {
        "pairs": float(result.num_pairs),
        "rejected": float(result.num_rejected),
        "false_alarms": float(result.num_false_alarms),
        "gap95": result.gap95,
    }
    if not is_gate:
        known = store.load(device)
        text = f"a short look: {seen}; {noise_text(known)}"
        return Finding(name="noise", state="good" if known.aa else "warning", text=text, figures=figures)
    if result.num_pairs < LEAST_PAIRS_TO_STORE:
        text = f"{seen}; too few to store a floor, run nas doctor --aa {GATE_PAIRS}"
        return Finding(name="noise", state="warning", text=text, figures=figures)
    if not passes(result):
        text = f"{seen}; allowed are 10% and 1%. Stored as this device's floor; free it of other work and enrol again"
        return Finding(name="noise", state="bad", text=text, figures=figures)
    return Finding(name="noise", state="good", text=f"{seen}; stored as this device's floor", figures=figures)
