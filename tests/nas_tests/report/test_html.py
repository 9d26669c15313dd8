from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from nas.config import load_config
from nas.report.html import DOES_NOT_PROVE, PROVES, report_html
from nas.report.page import Element, element
from nas.report.summary import StudySummary
from nas.report.write import write_report
from nas.trial import Outcome
from tests.nas_tests.report.studies import (
    make_blocked_summary,
    make_hostile_summary,
    make_phased_summary,
    make_summary,
)
from tests.nas_tests.trials import make_record

PNG = b"\x89PNG not really"
VOID = {"meta", "img"}


class Page(HTMLParser):
    """Checks that tags are nested well, and keeps the tags, addresses and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def _page(summary: StudySummary) -> Page:
    return Page(report_html(summary, PNG))


@pytest.mark.parametrize("make", [make_summary, make_blocked_summary, make_hostile_summary])
def test_the_page_is_well_formed_and_loads_nothing(make: Callable[[], StudySummary]) -> None:
    text = report_html(make(), PNG)
    page = Page(text)
    assert page.addresses == ["data:image/png;base64," + base64.b64encode(PNG).decode()]
    assert page.tags.isdisjoint({"script", "link", "iframe", "object", "embed", "form"})
    assert "url(" not in text
    assert "@import" not in text


def test_every_text_of_a_study_is_escaped() -> None:
    text = report_html(make_hostile_summary(), PNG)
    assert "<script" not in text
    # As often as the study says it: nothing was dropped either.
    assert text.count("&lt;script&gt;") > 20


def test_the_front_is_there_with_both_runtimes_intervals_and_both_scores() -> None:
    summary = make_summary()
    page = _page(summary)
    for member in summary.front:
        assert member.onnxruntime is not None
        assert member.test_score is not None
        assert member.candidate_id in page.text
        for estimate in (member.latency, member.onnxruntime):
            assert f"{estimate.latency_ms:#.3g}" in page.text
            assert f"{estimate.lower_ms:#.3g} – {estimate.upper_ms:#.3g}" in page.text
        for score in (member.val_score, member.test_score):
            assert f"{score.lower:.3f} – {score.upper:.3f}" in page.text


def test_the_baseline_is_said_below_the_front() -> None:
    assert "the baseline (question only): 0.664 on val, 0.670 on test." in report_html(make_summary(), b"")


def test_the_headline_says_what_was_found_and_within_which_budget() -> None:
    text = _page(make_summary()).text
    assert "5 networks meet latency of infer ≤ 5 ms" in text
    assert "Published" in text


def test_a_study_that_may_not_be_published_says_so_and_why() -> None:
    text = _page(make_blocked_summary()).text
    assert "Not published: nothing met latency of infer ≤ 0.5 ms and peak memory ≤ 64MiB" in text
    assert "Why: publish: no network met the budget." in text
    assert "Network (infeasible)" in text
    assert "1.76 to 1.84 × the budget" in text
    assert "Published" not in text


def test_where_a_default_budget_comes_from_is_said() -> None:
    summary = replace(make_summary(), budget_note="the latency of the reference network, as none was given")
    assert "the latency of the reference network, as none was given" in _page(summary).text


def test_every_outcome_is_listed_and_infrastructure_has_its_own_table() -> None:
    text = report_html(make_hostile_summary(), PNG)
    quality, infrastructure = text.split("Infrastructure failures</h3>")
    for outcome in Outcome:
        part = infrastructure if outcome.is_infrastructure else quality
        assert f"<code>{outcome.value}</code>" in part


def test_gates_stages_versions_seeds_and_the_command_are_there() -> None:
    summary = make_summary()
    text = _page(summary).text
    for gate in summary.gates.values():
        assert gate.reason in text
    for words in ("tune", "8 min 49 s", summary.device.fingerprint, "2.13.0", "seed of training", summary.command):
        assert words in text
    assert 'sampler = "budget"' in text
    assert "0badc0ffee12" in text
    for line in (*PROVES, *DOES_NOT_PROVE):
        assert line in text


def test_what_was_not_measured_is_said_in_words() -> None:
    summary = make_summary()
    member = replace(summary.front[0], onnxruntime=None, test_score=None)
    text = _page(replace(summary, front=(member,))).text
    assert "not measured" in text
    assert "not opened" in text
    assert "1 network meets" in text


def test_a_password_never_reaches_the_page() -> None:
    config = load_config(overrides={"output.storage": "postgresql://me:hunter2@host/db"})
    assert "hunter2" not in report_html(replace(make_summary(), config=config), PNG)


def test_an_element_escapes_text_and_keeps_elements() -> None:
    assert element("p", "<", Element("<b></b>"), title='"') == '<p title="&quot;">&lt;<b></b></p>'


def test_the_whole_report_is_written_and_replaced(tmp_path: Path) -> None:
    path = write_report(make_blocked_summary(), tmp_path)
    before = path.read_text()
    assert write_report(replace(make_summary(), out=tmp_path)) == path == tmp_path / "report.html"
    assert path.read_text() != before
    assert {file.name for file in tmp_path.iterdir()} == {"trials.csv", "front.csv", "pareto.png", "report.html"}
    assert base64.b64encode((tmp_path / "pareto.png").read_bytes()).decode() in path.read_text()


def test_several_phases_have_a_pair_of_columns_each_and_the_zoo_is_beside_the_front(tmp_path: Path) -> None:
    summary = make_phased_summary()
    text = Page(report_html(summary, PNG, PNG)).text
    for header in ("TVM decode@512, ms", "ONNX Runtime decode@512, ms", "TVM prefill@512, ms", "State", "64.0 KiB"):
        assert header in text
    prefill = summary.front[0].other_phases[0]
    assert f"{prefill.latency.latency_ms:#.3g}" in text
    assert prefill.onnxruntime is not None
    assert f"{prefill.onnxruntime.latency_ms:#.3g}" in text
    assert "decode@256, ms" not in text, "a plain look is in the picture and the table file only"
    zoo = text[text.index("Zoo") :]
    assert zoo.index("attention_only") < zoo.index("0.836") < zoo.index("largest") < zoo.index("not trained")
    assert "compile_failed: no memory" in zoo
    assert "no budget and no gate was held against them" in text
    write_report(replace(summary, out=tmp_path))
    assert base64.b64encode((tmp_path / "context.png").read_bytes()).decode() in (tmp_path / "report.html").read_text()


def test_one_phase_has_the_columns_it_always_had_and_no_picture_of_contexts(tmp_path: Path) -> None:
    text = _page(make_summary()).text
    assert "TVM, ms ONNX Runtime, ms Parameters Peak memory Val accuracy" in text
    assert "Latency and context" not in text and "State" not in text and "Zoo" not in text
    write_report(replace(make_phased_summary(), out=tmp_path))
    write_report(replace(make_summary(), out=tmp_path))
    assert not (tmp_path / "context.png").exists(), "that of an earlier front is gone"


def test_a_ladder_has_a_section_that_counts_each_rung_and_a_study_without_one_has_none() -> None:
    summary = make_summary()
    assert "Ladder of training lengths" not in report_html(summary, PNG)
    stopped = tuple(make_record(trial, Outcome.STOPPED_EARLY) for trial in (98, 99))
    laddered = replace(summary, records=(*summary.records, *stopped))
    assert [(rung.epochs, rung.reached, rung.stopped, rung.seconds) for rung in laddered.rungs] == [
        (2, 2, 0, 2.0),
        (4, 2, 2, 4.0),
    ]
    page = report_html(laddered, PNG)
    assert "Ladder of training lengths" in page and "compared within their rung alone" in page
