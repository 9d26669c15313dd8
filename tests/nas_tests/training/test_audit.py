from __future__ import annotations

from dataclasses import replace

import numpy as np

from nas.training.audit import audit_splits
from nas.training.task import Split
from tests.nas_tests.training.small_tasks import bright_half_task


def test_clean_splits_have_no_findings() -> None:
    assert audit_splits(bright_half_task()) == ()


def test_copies_across_splits_are_counted_and_wrong_labels_among_them_told_apart() -> None:
    task = bright_half_task()
    inputs, labels = task.test.inputs.copy(), task.test.labels.copy()
    inputs[:3] = task.train.inputs[:3]
    labels[:3] = task.train.labels[:3]
    labels[0] = (labels[0] + 1) % 4
    inputs[3] = task.val.inputs[0]
    findings = audit_splits(replace(task, test=Split(inputs=inputs, labels=labels)))
    counts = {(finding.kind, finding.where): finding.count for finding in findings}
    expected_conflict = int(labels[3] != task.val.labels[0])
    assert counts.pop(("conflicting_labels", "val/test"), 0) == expected_conflict
    assert counts == {
        ("duplicates", "train/test"): 3,
        ("conflicting_labels", "train/test"): 1,
        ("duplicates", "val/test"): 1,
    }
    assert "3 of 48 test examples also occur in train" in str(findings[0])


def test_imbalance_missing_classes_and_dead_inputs_are_found() -> None:
    task = bright_half_task()
    labels = np.zeros(len(task.val), dtype=np.int64)
    labels[0] = 1
    inputs = task.val.inputs.copy()
    inputs[5] = 7
    findings = audit_splits(replace(task, val=Split(inputs=inputs, labels=labels)))
    found = {finding.kind: finding for finding in findings}
    assert set(found) == {"imbalance", "missing_class", "constant_inputs"}
    assert "top, bottom" in found["missing_class"].detail
    assert found["constant_inputs"].count == 1
    assert all(finding.where == "val" for finding in findings)
