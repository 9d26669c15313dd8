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
    from nas.budget import Budget
    from nas.ledger import Ledger
    from nas.phases import phase_names, study_budgets
    from nas.search.stored import stored_config
    from nas.search.story import find_record, tell_story
    from search_spaces.registry import make_space

    config = stored_config(study)
    with Ledger(config.storage_url) as ledger:
        record = find_record(ledger.records(), candidate)
        network = record.candidate
        space = make_space(network.space, network.input, network.head)
        budgets = study_budgets(config.search.parsed_budgets, space)
        known = ledger.events("default_budget")
        if not budgets and known:
            budgets = (Budget(metric="latency_ms", phase=phase_names(space)[0], maximum=known[0].detail["maximum_ms"]),)
        chapters = tell_story(record, ledger, budgets)
    if as_json:
        print(json.dumps({"trial": record.trial, "candidate_id": record.candidate.candidate_id,
                          "outcome": record.outcome.value, "stages": [asdict(each) for each in chapters]}))  # fmt: skip
        return
    for chapter in chapters:
        spent = "" if chapter.seconds is None else f"  ({chapter.seconds:.1f} s)"
        print(f"{chapter.stage:9} {chapter.verdict or '-'}{spent}")
        for line in chapter.evidence:
            print(f"          {line}")
