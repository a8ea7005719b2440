"""The report: that it stands alone, says everything, escapes everything, and exists for every kind of ending."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from autotuner.domain.benefit import benefit, winning_trial
from autotuner.domain.findings.opening import opening
from autotuner.domain.judgement import Verdict
from autotuner.domain.measurement import Latency
from autotuner.domain.study import Level, Outcome, Phase, Study, TrialKind
from autotuner.errors import InvalidInput
from autotuner.report import render, series, svg, tables, text, write_report
from autotuner.report.charts import NARROW, WIDE, Point, scatter
from autotuner.report.reasons import reasons
from tests.builders import a_plan, a_study, a_target, at, changed
from tests.closed_loop.loop import Loop, a_brisk_plan
from tests.studies import a_judgement, a_rich_study, a_step, a_trial, ended, judged

NOTE = "emulated GPU"
VOID_TAGS = {"meta", "circle", "rect", "path", "line", "polyline", "br", "link", "img"}
STYLE = (Path(series.__file__).parent / "templates" / "style.css").read_text(encoding="utf-8")


class Page(HTMLParser):
    """A page taken apart: its text, its tags with their attributes, and whether every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.crossed: list[str] = []
        self.words = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.crossed.append(tag)

    def handle_data(self, data: str) -> None:
        self.words += data

    def all(self, tag: str) -> list[dict[str, str]]:
        """Attributes of every `tag`."""
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def promoted() -> Study:
    study = Loop(plan=a_brisk_plan(max_trials=1), seed=2).run()
    assert study.outcome is Outcome.PROMOTED
    return study


@pytest.fixture(scope="module")
def page(promoted: Study) -> Page:
    return Page(render(promoted, NOTE))


def studies_of_every_kind() -> dict[str, Study]:
    rich = a_rich_study()
    verdicts = [
        a_step(number, judgement=a_judgement(verdict=verdict)) for number, verdict in enumerate(Verdict)
    ]
    return {
        "just created": a_study(),
        "ended before its first trial": ended(a_study(), Outcome.ABORTED),
        "ended before its first step": ended(
            a_study(trials=(judged(a_trial(kind=TrialKind.PRODUCTION, steps=()), Verdict.VOID),)),
            Outcome.INCONCLUSIVE,
        ),
        "running": rich,
        "with every verdict": ended(
            replace(rich, trials=(judged(a_trial(steps=tuple(verdicts))),), winner=None)
        ),
        **{f"ended as {outcome}": ended(rich, outcome) for outcome in Outcome},
    }


@pytest.fixture(params=studies_of_every_kind().items(), ids=lambda item: item[0])
def any_study(request: pytest.FixtureRequest) -> Study:
    study: Study = request.param[1]
    return study


def test_every_kind_of_study_has_a_well_formed_page(any_study: Study) -> None:
    page = Page(render(any_study, NOTE))
    assert page.crossed == []
    assert page.open == []
    assert any_study.id in page.words
    assert "None" not in page.words
    assert "nan" not in re.findall(r"[a-z]+", page.words)


def test_the_page_needs_no_other_file(promoted: Study) -> None:
    html = render(promoted, NOTE)
    page = Page(html)
    assert not [name for name, _ in page.tags if name in ("script", "link", "img", "iframe", "object")]
    assert not [a for _, a in page.tags if {"src", "href", "onclick"} & set(a)]
    assert "url(" not in html
    assert "@import" not in html
    assert "://" not in html


def test_the_page_has_a_title_and_a_language(page: Page) -> None:
    assert page.all("html") == [{"lang": "en"}]
    assert "Promoted: vision" in page.words
    assert page.all("h1")


def test_every_chart_has_a_name_a_description_and_its_figures_below(page: Page) -> None:
    charts = [a for a in page.all("svg") if a.get("class") == "chart"]
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(charts) == 6, "three charts, each wide and narrow"
    assert all(
        c["role"] == "img" and {c["aria-labelledby"], c["aria-describedby"]} <= set(ids) for c in charts
    )
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    assert page.words.count("The figures of this chart") == 3


def test_pictures_that_are_not_charts_are_hidden_or_named(page: Page) -> None:
    others = [a for a in page.all("svg") if a.get("class") != "chart"]
    assert all(a.get("aria-hidden") == "true" or a.get("aria-label") for a in others)


def test_what_production_was_like_is_told_by_the_rules_of_a_diagnosis(promoted: Study, page: Page) -> None:
    found = opening(promoted)
    (told,) = [
        each.answer for each in reasons(promoted) if each.question == "What was production like before?"
    ]

    assert found
    for finding in found:
        assert all(sentence in page.words and sentence[1:] in told for sentence in finding.evidence)


def test_every_trial_stands_there_in_order_with_its_reasons(promoted: Study) -> None:
    rows = tables.trials(promoted).rows
    page = Page(render(promoted, NOTE)).words
    assert [row[0] for row in rows] == [f"#{trial.number}" for trial in promoted.trials]
    for trial in promoted.trials:
        assert trial.configuration.describe() in page
        assert trial.proposal is None or trial.proposal.reason in page
        assert all(step.judgement.reason in page for step in trial.steps)


def test_every_step_shows_the_counts_its_verdict_rests_on() -> None:
    step = a_step(judgement=a_judgement(log_e_accept=math.log(25), log_e_reject=-3.0, dispersion=6.0))
    (row,) = tables.steps(judged(a_trial(steps=(step,)))).rows
    assert "2–3 of 1,300" in row
    assert "13.0" in row, "allowed: 1 % of 1300"
    assert "3 of 2,600" in row
    assert "25.0 (10.0)" in row, "screening accepts at an e-value of 10"
    assert "6.00" in row


def test_the_strict_kinds_show_the_stricter_threshold() -> None:
    (row,) = tables.steps(judged(a_trial(kind=TrialKind.CONFIRMATION))).rows
    assert any("(100)" in cell for cell in row)


def test_the_winner_shown_is_the_one_whose_worth_is_told(promoted: Study) -> None:
    worth = benefit(promoted).winner
    shown = winning_trial(promoted)
    assert worth is not None
    assert shown is not None
    assert shown.kind is TrialKind.CONFIRMATION
    assert shown.configuration == worth.configuration
    winner = series.latency_plot(promoted).ramps[1]
    assert winner.role == "winner"
    assert text.whole(worth.capacity_per_second) in winner.words


def test_the_knee_is_the_highest_accepted_level(promoted: Study) -> None:
    incumbent = series.latency_plot(promoted).ramps[0]
    baseline = next(t for t in promoted.trials if t.kind is TrialKind.BASELINE)
    assert incumbent.knee is not None
    assert incumbent.knee.x == baseline.accepted[-1].rate_per_second
    assert incumbent.points[-1].verdict is Verdict.REJECT


def test_every_step_with_a_request_is_a_point(promoted: Study) -> None:
    steps = [step for trial in promoted.trials for step in trial.steps if step.candidate.total]
    points = series.latency_plot(promoted).points
    assert [p.verdict for p in points] == [s.verdict for s in steps]
    picture = scatter(series.latency_plot(promoted), WIDE)
    rejected = sum(s.verdict is Verdict.REJECT for s in steps)
    assert picture.count('class="mark mark-reject"') == rejected > 0


def test_a_latency_beyond_the_histogram_is_drawn_at_the_upper_edge() -> None:
    study = a_rich_study(
        trials=(judged(a_trial(steps=(a_step(latency=Latency(0.1, 0.2, None)),))),), winner=None
    )
    plot = series.latency_plot(study)
    assert plot.points[0].y is None
    assert f'cy="{NARROW.top:.1f}"' in scatter(plot, NARROW)


def test_a_repeated_level_is_drawn_once_in_a_ramp() -> None:
    again = a_step(1, attempt=2, rate_per_second=300.0)
    steps = (a_step(0), a_step(1, judgement=a_judgement(verdict=Verdict.VOID)), again)
    study = a_rich_study(trials=(judged(a_trial(kind=TrialKind.BASELINE, steps=steps)),), winner=None)
    ramp = series.latency_plot(study).ramps[0]
    assert [point.x for point in ramp.points] == [steps[0].rate_per_second, 300.0]


def test_bars_are_taken_at_production_load_else_at_the_lowest(promoted: Study) -> None:
    steps = (a_step(0), a_step(1, level=Level(1, 0.5)), a_step(2, level=Level(2, 0.7)))
    trial = judged(a_trial(steps=steps))
    study = a_study(plan=a_plan(target=a_target(stable=2)))
    assert series.shown_step(study, trial) is steps[1]
    assert series.shown_step(study, replace(trial, steps=steps[::2])) is steps[0]
    assert series.shown_step(study, replace(trial, steps=(a_step(use=None),))) is None


def test_nothing_that_somebody_wrote_becomes_markup() -> None:
    evil = '<script>alert("1")</script>&'
    step = a_step(judgement=a_judgement(reason=evil))
    proposal = changed(a_trial().proposal, reason=evil, sampler=evil, predicted={evil: 1.0})
    trials = tuple(
        replace(
            judged(a_trial(n, kind=kind, steps=(step,), replicas=(evil,), proposal=proposal)), reason=evil
        )
        for n, kind in enumerate(TrialKind)
    )
    plan = a_plan(
        target=a_target(name=evil, model=evil, currency=evil, replica_cost_per_hour=1.0), sampler=evil
    )
    study = a_rich_study(id=evil, plan=plan, trials=trials, actor=evil, winner=2)
    html = render(replace(ended(study, Outcome.ABORTED), reason=evil), evil)
    assert "<script" not in html
    assert html.count("&lt;script&gt;") > 20
    assert Page(html).crossed == []


def test_the_note_stands_in_the_header_and_in_the_footer(promoted: Study) -> None:
    html = render(promoted, "real ONNX model on CPU")
    header, footer = html.split("</header>")[0], html.split("<footer>")[1]
    assert "real ONNX model on CPU" in header
    assert "real ONNX model on CPU" in footer


def test_the_page_says_how_to_check_the_study(page: Page, promoted: Study) -> None:
    assert f"autotuner replay {promoted.id}" in page.words
    assert f"autotuner show {promoted.id}" in page.words


def test_a_limited_dispersion_is_confessed() -> None:
    limited = a_study(plan=a_plan(max_dispersion=6.0), dispersion=6.0, measured_dispersion=26.3)
    sentence = tables.dispersion_sentence(limited)
    assert "26.3" in sentence
    assert "limits the factor to 6.00" in sentence
    assert "about 4 times as long" in sentence


def test_an_unlimited_dispersion_is_not_called_limited() -> None:
    free = a_study(dispersion=26.3, measured_dispersion=26.3)
    assert "limits" not in tables.dispersion_sentence(free)
    assert "assumed" in tables.dispersion_sentence(a_study())


def test_exceeding_the_harm_budget_is_said() -> None:
    study = a_rich_study(trials=(judged(a_trial(closed_harm_requests=500.0)),), winner=None)
    assert "the budget was exceeded" in Page(render(study, NOTE)).words
    assert "the budget was exceeded" not in Page(render(a_rich_study(), NOTE)).words


def test_a_promotion_that_was_rolled_back_is_not_shown_as_standing() -> None:
    stages = tuple(
        judged(a_trial(n, kind=kind), verdict)
        for n, (kind, verdict) in enumerate(
            [(TrialKind.STAGE, Verdict.ACCEPT), (TrialKind.WATCH, Verdict.REJECT)]
        )
    )
    study = replace(
        ended(a_rich_study(trials=stages, winner=0), Outcome.ABORTED), reason="rolled back: too slow"
    )
    assert "The promotion did not stand: rolled back: too slow" in Page(render(study, NOTE)).words


def test_an_ended_study_without_stages_says_that_nothing_was_promoted() -> None:
    assert "Nothing was promoted" in Page(render(ended(a_study()), NOTE)).words


def test_the_same_study_gives_the_same_page(promoted: Study) -> None:
    assert render(promoted, NOTE) == render(promoted, NOTE)


def test_the_report_is_written_where_it_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    assert write_report(a_study(phase=Phase.ENDED), path, NOTE) == path
    assert path.read_text(encoding="utf-8").lstrip().startswith("<!doctype html>")


def test_a_place_that_cannot_be_written_is_invalid_input(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="a file that can be written"):
        write_report(a_study(), tmp_path, NOTE)


# -- colours and shapes ------------------------------------------------------------------------------------


def _tokens(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", block))


LIGHT = _tokens(STYLE.split("@media (prefers-color-scheme: dark)")[0])
DARK = _tokens(STYLE.split("@media (prefers-color-scheme: dark)")[1].split("* {")[0])
TEXT = ("ink", "quiet", "accept", "reject", "inconclusive", "void", "incumbent", "winner", "forbidden")
GRAPHICS = ("queue", "compute")


def _luminance(colour: str) -> float:
    """Relative luminance of an sRGB colour (WCAG 2.2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_graphics_have_the_contrast_of_wcag_aa(scheme: dict[str, str]) -> None:
    assert set(LIGHT) == set(DARK)
    for back in ("page", "card"):
        assert [n for n in TEXT if _contrast(scheme[n], scheme[back]) < 4.5] == []
    assert [n for n in GRAPHICS if _contrast(scheme[n], scheme["page"]) < 3.0] == []


def test_each_verdict_has_a_shape_of_its_own() -> None:
    shapes = {re.sub(r'class="[^"]*"', "", svg.mark(verdict, 8, 8, 5)) for verdict in Verdict}
    assert len(shapes) == len(Verdict)


# -- scales and figures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (137.0, 431.0), (0.003, 0.0041), (1.0, 1e6)])
def test_ticks_are_even_and_inside(low: float, high: float) -> None:
    ticks = svg.linear_ticks(low, high, 6)
    gaps = [b - a for a, b in pairwise(ticks)]
    assert 2 <= len(ticks) <= 12
    assert low - 1e-9 <= ticks[0] < ticks[-1] <= high * (1 + 1e-9)
    assert gaps == pytest.approx([gaps[0]] * len(gaps))


@pytest.mark.parametrize(("low", "high"), [(1.0, 10.0), (29.0, 320.0), (40.0, 70.0), (5.0, 50_000.0)])
def test_a_logarithmic_axis_always_has_some_ticks(low: float, high: float) -> None:
    ticks = svg.Scale(low, high, 0.0, 100.0, logarithmic=True).ticks(6)
    assert len(ticks) >= 3
    assert all(low <= tick <= high for tick in ticks)


def test_a_single_point_can_be_drawn() -> None:
    study = a_rich_study(trials=(judged(a_trial()),), winner=None)
    lone = Point(0.0, 0.0, Verdict.VOID, "alone")
    plot = replace(series.batch_plot(study), points=(lone,), ramps=())
    assert "alone" in scatter(plot, NARROW)


@pytest.mark.parametrize(
    ("share", "words"),
    [(None, "–"), (0.0, "0 %"), (0.333, "33.3 %"), (1.0, "100 %"), (0.0085, "0.85 %"), (12.0, "1,200 %")],
)
def test_percentages_are_short_and_never_in_powers(share: float | None, words: str) -> None:
    assert text.percent(share) == words


@pytest.mark.parametrize(
    ("log_e", "words"), [(0.0, "1.00"), (math.log(250), "250"), (168.76, "10⁷³"), (-30.0, "10⁻¹³")]
)
def test_evidence_is_readable_however_large(log_e: float, words: str) -> None:
    assert text.evidence(log_e) == words


def test_an_unknown_figure_is_never_zero() -> None:
    assert text.figure(None) == text.milliseconds(None) == text.whole(None) == text.UNKNOWN
    assert text.change(None, 1.0) == text.change(1.0, None) == text.UNKNOWN
    assert text.instant(None) == text.length(None) == text.UNKNOWN


@pytest.mark.parametrize(
    ("value", "words"), [(0.0, "0"), (61.19, "61.2"), (4024.4, "4,024"), (0.0512, "0.051")]
)
def test_figures_have_about_three_digits(value: float, words: str) -> None:
    assert text.figure(value) == words


def test_instants_are_in_utc() -> None:
    assert text.instant(at(5)) == "2026-01-05 02:00:05 UTC"
