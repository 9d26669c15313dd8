"""`nas audit`: does the order after short training hold after long training?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def audit(
    study: Annotated[Path, typer.Argument(help="Results folder of a finished search.")],
    candidates: Annotated[int, typer.Option(min=5, help="Networks that are trained longer.")] = 10,
    factor: Annotated[int, typer.Option(min=2, help="How many times longer.")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Train a sample of a study's networks much longer, and block its publication when the order does not hold.

    Exit code 1 when it does not. What was trained is kept: an interrupted audit goes on.
    """
    from nas.cli.terminal import Terminal
    from nas.gates.proxy_audit import order_gate
    from nas.ledger import Ledger
    from nas.search.audit_run import AuditError, AuditPlan, known_audit
    from nas.search.session import run_study
    from nas.search.stored import stored_config

    config = stored_config(study)
    with Ledger(config.storage_url) as ledger:
        num_tried = ledger.num_tried()
    if not num_tried:
        raise AuditError(f"{study}: no trial is finished; run `nas search` first")
    # As many trials as there are: the study is settled and reported again, not gone on with.
    config = config.model_copy(update={"search": config.search.model_copy(update={"trials": num_tried})})
    plan = AuditPlan(num_candidates=candidates, factor=factor)
    with Terminal() as terminal:
        result = run_study(config, fresh=False, accept_failures=None, watcher=terminal, audit=plan)
    with Ledger(config.storage_url) as ledger:
        seen = known_audit(ledger)
    assert seen is not None, "it was audited"
    gate = order_gate(seen)
    if as_json:
        print(json.dumps({"study": str(study), "audit": seen.to_json(), "passed": gate.passed, "reason": gate.reason}))
    else:
        rows = zip(seen.candidates, seen.cheap, seen.dear, strict=True)
        for name, cheap, dear in sorted(rows, key=lambda row: row[2], reverse=seen.direction == "maximize"):
            print(f"{name}  short {cheap:.4f}  long {dear:.4f}")
        print(gate.reason)
        print(f"report: {result.report}")
    if not gate.passed:
        raise typer.Exit(1)
