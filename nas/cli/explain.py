"""`nas explain`: one trial's story."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def explain(
    study: Annotated[Path, typer.Argument(help="Results folder of a search.")],
    candidate: Annotated[str, typer.Argument(help="Trial number, or the id of a network or how it begins.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Tell what became of one candidate, stage by stage, with the evidence for each gate."""
    from nas.budget import Budget, resolve_budgets
    from nas.ledger import Ledger
    from nas.search.stored import stored_config
    from nas.search.story import find_record, tell_story

    config = stored_config(study)
    with Ledger(config.storage_url) as ledger:
        record = find_record(ledger.records(), candidate)
        phase = record.cost.latencies[0][0] if record.cost is not None else "infer"
        budgets = resolve_budgets(config.search.parsed_budgets, (phase,))
        known = ledger.events("default_budget")
        if not budgets and known:
            budgets = (Budget(metric="latency_ms", phase=phase, maximum=known[0].detail["maximum_ms"]),)
        chapters = tell_story(record, ledger, budgets, phase)
    if as_json:
        print(json.dumps({"trial": record.trial, "candidate_id": record.candidate.candidate_id,
                          "outcome": record.outcome.value, "stages": [asdict(each) for each in chapters]}))  # fmt: skip
        return
    for chapter in chapters:
        spent = "" if chapter.seconds is None else f"  ({chapter.seconds:.1f} s)"
        print(f"{chapter.stage:9} {chapter.verdict or '-'}{spent}")
        for line in chapter.evidence:
            print(f"          {line}")
