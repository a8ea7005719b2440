"""What every catalogue promises, in memory and in PostgreSQL alike: filters, orders, pages and details."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from autotuner.bookkeeping.rules import ANY_MARK
from autotuner.catalogue import (
    AuditFilter,
    Between,
    LedgerLine,
    Mark,
    Page,
    Span,
    StudyFilter,
    TrialFilter,
    TrialOrder,
    TrialSort,
    TrialSummary,
    Window,
)
from autotuner.domain.access import Said
from autotuner.domain.benefit import benefit
from autotuner.domain.configuration import Configuration
from autotuner.domain.judgement import Verdict
from autotuner.domain.registration import Registration
from autotuner.domain.reversal import reversal_of
from autotuner.domain.study import Outcome, Phase, Reversal, Study, Trial, TrialKind, TrialState, Wish
from autotuner.errors import NotFound
from autotuner.ports import AuditRecord, StudySummary
from tests.builders import a_plan, a_study, a_target, at
from tests.contract.conftest import Backend
from tests.contract.stored import audited, created, granted, registered
from tests.studies import a_rich_study, a_trial, append, decided, ended, judged

EVERY = TrialFilter()
NEWEST = TrialOrder()


def walked(ask: Callable[[Window], Page[Any]], limit: int) -> list[Any]:
    """Every item of a list, page by page; no page is larger than asked for, and only the last has no mark."""
    found: list[Any] = []
    after: Mark | None = None
    while True:
        page = ask(Window(limit, after))
        assert len(page.items) <= limit
        found += page.items
        if page.mark is None:
            return found
        assert page.items
        after = page.mark


# -- targets -----------------------------------------------------------------------------------------------


def test_targets_are_listed_by_name_with_their_newest_budget(backend: Backend) -> None:
    for name in ("vision", "speech", "search"):
        registered(backend, name)
    tighter = replace(backend.registry.registration("speech").slo, p99_ceiling_seconds=0.05)
    backend.registry.set_budget("speech", tighter, 1, Said("anna", "", at(60)))

    found: list[Registration] = walked(backend.catalogue.targets, 2)

    assert [each.target.name for each in found] == ["search", "speech", "vision"]
    assert found == [backend.registry.registration(each.target.name) for each in found]
    assert [each.slo.version for each in found] == [1, 2, 1]


def test_retired_targets_are_listed_when_they_are_asked_for(backend: Backend) -> None:
    for name in ("vision", "speech"):
        registered(backend, name)
    backend.registry.retire("speech", ANY_MARK, Said("anna", "", at(60)))

    def names(retired: bool | None) -> list[str]:
        page = backend.catalogue.targets(Window(), retired=retired)
        return [each.target.name for each in page.items]

    assert (names(None), names(True), names(False)) == (["speech", "vision"], ["speech"], ["vision"])


# -- studies -----------------------------------------------------------------------------------------------


def many_studies(backend: Backend) -> list[str]:
    """Five ended studies of two targets and an unfinished one; their ids, newest first."""
    ids: list[str] = []
    for number in range(6):
        name = ("vision", "speech")[number % 2]
        study = created(backend, name, id=f"study-{number}", created_at=at(number // 2))
        ids.insert(0, study.id)
        if number < 5:
            outcome = Outcome.PROMOTED if number == 0 else Outcome.KEPT
            append(backend.store, study, ended(study, outcome), granted(backend, name))
    return ids


@pytest.mark.parametrize("limit", [1, 2, 4, 6, 7])
def test_studies_are_listed_newest_first_on_pages_of_any_size(backend: Backend, limit: int) -> None:
    ids = many_studies(backend)

    found: list[StudySummary] = walked(lambda w: backend.catalogue.studies(StudyFilter(), w), limit)

    assert [each.id for each in found] == ids
    assert tuple(found) == backend.store.studies()


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (StudyFilter(target="vision"), [4, 2, 0]),
        (StudyFilter(target="nobody"), []),
        (StudyFilter(phase=Phase.CREATED), [5]),
        (StudyFilter(outcome=Outcome.PROMOTED), [0]),
        (StudyFilter(outcome=Outcome.KEPT, target="speech"), [3, 1]),
        (StudyFilter(created=Span(since=at(1))), [5, 4, 3, 2]),
        (StudyFilter(created=Span(since=at(1), until=at(2))), [3, 2]),
    ],
)
def test_studies_are_filtered(backend: Backend, wanted: StudyFilter, numbers: list[int]) -> None:
    many_studies(backend)

    found = backend.catalogue.studies(wanted, Window()).items

    assert [each.id for each in found] == [f"study-{number}" for number in numbers]


def measured(backend: Backend, name: str, number: int, *trials: Trial, over: bool = True) -> str:
    """A study of a target with these trials, a minute later than the one before; its id."""
    study = created(backend, name, id=f"{name}-{number}", created_at=at(60 * number))
    after = replace(study, trials=trials)
    append(backend.store, study, ended(after) if over else after, granted(backend, name))
    return study.id


def a_look(
    number: int, kind: TrialKind, configuration: Configuration, verdict: Verdict, second: int
) -> Trial:
    """A judged trial of a kind."""
    trial = a_trial(number, kind=kind, configuration=configuration, proposed_at=at(second), proposal=None)
    return judged(trial, verdict)


FOUND, BETTER = Configuration(0, (4, 8), 1, 32), Configuration(2000, (), 2, 32)


def test_at_a_glance_a_target_serves_what_its_newest_study_found_or_brought(backend: Backend) -> None:
    production = a_look(0, TrialKind.PRODUCTION, FOUND, Verdict.ACCEPT, 1)
    watched = a_look(1, TrialKind.WATCH, BETTER, Verdict.ACCEPT, 2)
    refused = a_look(1, TrialKind.WATCH, BETTER, Verdict.REJECT, 2)
    measured(backend, "promoted", 0, production, watched)
    measured(backend, "rolled-back", 0, production, refused)
    measured(backend, "tried", 0, production, a_look(1, TrialKind.CANDIDATE, BETTER, Verdict.ACCEPT, 2))
    measured(backend, "begun", 0, production, watched)
    newest = measured(backend, "begun", 1, over=False)
    registered(backend, "untouched")

    names = ["promoted", "rolled-back", "tried", "begun", "untouched", "unknown"]
    found = backend.catalogue.glances(names)

    assert {name: each.serving for name, each in found.items()} == {
        "promoted": BETTER,
        "rolled-back": FOUND,
        "tried": FOUND,
        "begun": BETTER,
    }
    assert found["begun"].newest is not None
    assert (found["begun"].newest.id, found["begun"].newest.outcome) == (newest, None)


def test_at_a_glance_a_target_serves_what_taking_a_promotion_back_has_restored(backend: Backend) -> None:
    production = a_look(0, TrialKind.PRODUCTION, FOUND, Verdict.ACCEPT, 1)
    watched = a_look(1, TrialKind.WATCH, BETTER, Verdict.ACCEPT, 2)
    promotion = measured(backend, "vision", 0, production, watched)
    before = a_rich_study().incumbent
    assert before is not None
    before = replace(before, configuration=FOUND)
    plan = replace(backend.store.study(promotion).plan, reverses=Reversal(promotion, before, BETTER))
    back = a_study(id="back", plan=plan, created_at=at(60))
    backend.store.create_study(back)

    under_way = backend.catalogue.glances(["vision"])["vision"].serving
    append(backend.store, back, ended(back, Outcome.ROLLED_BACK), granted(backend))
    done = backend.catalogue.glances(["vision"])["vision"].serving

    assert (under_way, done) == (BETTER, FOUND)


def test_a_study_stands_as_its_records_say(backend: Backend) -> None:
    budget = registered(backend)
    study = a_rich_study(budget)
    backend.store.create_study(replace(study, trials=()))
    append(backend.store, replace(study, trials=()), study, granted(backend))
    backend.store.set_wish(study.id, Wish.PAUSE, "bob", "", at(5))

    standing = backend.catalogue.standing(study.id)

    assert standing == backend.catalogue.standing("latest")
    assert backend.catalogue.study_id("latest") == backend.catalogue.study_id(study.id) == study.id
    assert (standing.plan, standing.actor, standing.wish, standing.sequence) == (
        study.plan,
        study.actor,
        Wish.PAUSE,
        1,
    )
    assert (standing.winner, standing.promoted) == (study.winner, study.promoted)
    assert standing.harm_requests == pytest.approx(study.harm_requests)
    assert (standing.dispersion, standing.reference_rate_per_second) == (
        study.dispersion,
        study.reference_rate_per_second,
    )
    assert standing.summary == backend.store.studies()[0]


@pytest.mark.parametrize(
    "ask",
    [
        lambda catalogue: catalogue.study_id("nobody"),
        lambda catalogue: catalogue.study_id("latest"),
        lambda catalogue: catalogue.standing("nobody"),
        lambda catalogue: catalogue.standing("latest"),
        lambda catalogue: catalogue.evidence("nobody", 0),
        lambda catalogue: catalogue.progress("nobody", 0, 10),
    ],
)
def test_what_is_unknown_is_not_found(backend: Backend, ask: Callable[[Any], object]) -> None:
    with pytest.raises(NotFound):
        ask(backend.catalogue)


# -- trials ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tried:
    """Trials of two studies, as `many_trials` made them."""

    vision: Study
    speech: Study


def many_trials(backend: Backend) -> Tried:
    """Four trials of `vision`, of which two are judged, and two of `speech` proposed at the same instants."""
    made = []
    for name, count in (("vision", 4), ("speech", 2)):
        study = replace(created(backend, name, id=f"study-{name}"), reference_rate_per_second=100.0)
        trials = []
        for number in range(count):
            trial = a_trial(
                number,
                configuration=Configuration(100 * number, (4, 8)[:number], 1 + number % 3, 8 * (1 + number)),
                proposed_at=at(10 * number),
                closed_harm_requests=float(count - number),
                **({} if number < 2 else {"steps": ()}),
            )
            trials.append(judged(trial) if number < 2 else trial)
        after = replace(study, trials=tuple(trials))
        append(backend.store, study, after, granted(backend, name))
        made.append(after)
    return Tried(*made)


def named(found: list[TrialSummary]) -> list[str]:
    return [f"{each.target}/{each.number}" for each in found]


def test_a_listed_trial_tells_what_the_study_records(backend: Backend) -> None:
    tried = many_trials(backend)

    found = backend.catalogue.trials(TrialFilter(study="study-vision"), NEWEST, Window()).items

    trial, first = tried.vision.trials[0], found[-1]
    assert (first.study, first.target, first.number) == ("study-vision", "vision", 0)
    assert (first.kind, first.state, first.verdict) == (trial.kind, TrialState.JUDGED, trial.verdict)
    assert (first.replicas, first.configuration) == (trial.replicas, trial.configuration)
    assert (first.reason, first.limited_by) == (trial.reason, trial.limited_by)
    assert first.capacity_per_second == pytest.approx(100 / 3)
    assert first.harm_requests == pytest.approx(trial.harm_requests)
    assert (first.proposed_at, first.ended_at) == (trial.proposed_at, trial.ended_at)


@pytest.mark.parametrize("limit", [1, 2, 5, 6, 9])
@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize(
    ("by", "ascending"),
    [
        (TrialSort.PROPOSED_AT, ["speech/0", "vision/0", "speech/1", "vision/1", "vision/2", "vision/3"]),
        (TrialSort.CAPACITY, ["vision/2", "vision/3", "speech/0", "speech/1", "vision/0", "vision/1"]),
        (TrialSort.HARM, ["vision/3", "speech/1", "vision/2", "speech/0", "vision/1", "vision/0"]),
    ],
)
def test_trials_are_sorted_on_pages_of_any_size(
    backend: Backend, by: TrialSort, ascending: list[str], descending: bool, limit: int
) -> None:
    many_trials(backend)
    order = TrialOrder(by, descending)

    found = walked(lambda window: backend.catalogue.trials(EVERY, order, window), limit)

    if by is TrialSort.HARM:
        key = sorted(
            found, key=lambda each: (each.harm_requests, each.study, each.number), reverse=descending
        )
        assert found == key
    else:
        assert named(found) == (ascending[::-1] if descending else ascending)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (TrialFilter(target="speech"), ["speech/1", "speech/0"]),
        (TrialFilter(study="study-speech"), ["speech/1", "speech/0"]),
        (TrialFilter(study="study-speech", target="vision"), []),
        (TrialFilter(verdict=Verdict.ACCEPT, target="vision"), ["vision/1", "vision/0"]),
        (TrialFilter(verdict=Verdict.REJECT), []),
        (TrialFilter(kind=TrialKind.CANDIDATE, target="speech"), ["speech/1", "speech/0"]),
        (TrialFilter(kind=TrialKind.BASELINE), []),
        (TrialFilter(state=TrialState.JUDGED, target="vision"), ["vision/1", "vision/0"]),
        (TrialFilter(delay_microseconds=Between(100, 200)), ["vision/2", "vision/1", "speech/1"]),
        (TrialFilter(delay_microseconds=Between(least=300)), ["vision/3"]),
        (TrialFilter(instances=Between(most=1), target="vision"), ["vision/3", "vision/0"]),
        (TrialFilter(max_batch_size=Between(24, 32)), ["vision/3", "vision/2"]),
        (TrialFilter(preferred=(4, 8)), ["vision/3", "vision/2"]),
        (TrialFilter(preferred=()), ["vision/0", "speech/0"]),
        (TrialFilter(preferred=(8,)), []),
        (TrialFilter(proposed=Span(since=at(10), until=at(30))), ["vision/2", "vision/1", "speech/1"]),
    ],
)
def test_trials_are_filtered(backend: Backend, wanted: TrialFilter, expected: list[str]) -> None:
    many_trials(backend)

    assert named(list(backend.catalogue.trials(wanted, NEWEST, Window()).items)) == expected


def test_every_trial_is_read_oldest_first(backend: Backend) -> None:
    many_trials(backend)

    assert named(list(backend.catalogue.every_trial(EVERY))) == [
        "speech/0",
        "vision/0",
        "speech/1",
        "vision/1",
        "vision/2",
        "vision/3",
    ]
    assert named(list(backend.catalogue.every_trial(TrialFilter(target="nobody")))) == []


def test_a_page_goes_on_where_the_one_before_ended_whatever_was_added(backend: Backend) -> None:
    tried = many_trials(backend)
    first = backend.catalogue.trials(TrialFilter(target="vision"), NEWEST, Window(2))
    newer = replace(tried.vision, trials=(*tried.vision.trials, a_trial(4, proposed_at=at(99), steps=())))
    append(backend.store, tried.vision, newer, granted(backend))

    second = backend.catalogue.trials(TrialFilter(target="vision"), NEWEST, Window(2, first.mark))

    assert named([*first.items, *second.items]) == ["vision/3", "vision/2", "vision/1", "vision/0"]
    assert second.mark is None


def test_the_evidence_of_a_trial_is_all_that_was_recorded(backend: Backend) -> None:
    budget = registered(backend)
    study = a_rich_study(budget)
    backend.store.create_study(replace(study, trials=()))
    append(backend.store, replace(study, trials=()), study, granted(backend))

    for number, trial in enumerate(study.trials):
        evidence = backend.catalogue.evidence(study.id, number)
        assert (evidence.trial, evidence.plan) == (trial, study.plan)
        assert evidence.summary.number == number
    assert backend.catalogue.evidence("latest", 0).trial == study.trials[0]


@pytest.mark.parametrize("number", [-1, 99])
def test_a_trial_that_was_never_made_is_not_found(backend: Backend, number: int) -> None:
    many_trials(backend)

    with pytest.raises(NotFound, match=f"study-vision/{number}"):
        backend.catalogue.evidence("study-vision", number)


# -- journal and audit -------------------------------------------------------------------------------------


def test_the_progress_of_a_study_is_read_from_any_entry_on(backend: Backend) -> None:
    study = created(backend)
    grant = granted(backend)
    once = append(backend.store, study, decided(study), grant)
    append(backend.store, once, ended(once), grant)
    entries = backend.store.journal(study.id)

    found = backend.catalogue.progress(study.id, 0, 10)

    assert [(each.sequence, each.at, each.kind, each.reason, each.actor) for each in found] == [
        (each.sequence, each.at, each.kind, each.reason, each.actor) for each in entries
    ]
    assert backend.catalogue.progress(study.id, 1, 10) == found[1:]
    assert backend.catalogue.progress(study.id, 0, 1) == found[:1]
    assert backend.catalogue.progress(study.id, 2, 10) == ()


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_the_audit_is_read_newest_first_on_pages_of_any_size(backend: Backend, limit: int) -> None:
    many_studies(backend)
    whole = sorted(audited(backend), key=lambda each: (each.at, each.number), reverse=True)

    found: list[AuditRecord] = walked(lambda w: backend.catalogue.audit(AuditFilter(), w), limit)

    assert found == whole


@pytest.mark.parametrize(
    "wanted",
    [
        AuditFilter(actor="operator"),
        AuditFilter(action="study_started"),
        AuditFilter(subject="vision"),
        AuditFilter(actor="operator", action="study_started", subject="study-3"),
        AuditFilter(at=Span(since=at(1), until=at(2))),
        AuditFilter(actor="nobody"),
        AuditFilter(actor="no\x00body"),
    ],
)
def test_the_audit_is_filtered(backend: Backend, wanted: AuditFilter) -> None:
    many_studies(backend)
    expected = [
        each
        for each in audited(backend)
        if wanted.actor in (None, each.actor)
        and wanted.action in (None, each.action)
        and wanted.subject in (None, each.subject)
        and wanted.at.holds(each.at)
    ]

    found = backend.catalogue.audit(wanted, Window(100)).items

    assert sorted(each.number for each in found) == sorted(each.number for each in expected)


def test_equal_lists_are_equal_whatever_store_kept_them(memory: Backend, postgres: Backend) -> None:
    def told(backend: Backend) -> list[object]:
        many_trials(backend)
        catalogue = backend.catalogue
        return [
            catalogue.trials(EVERY, NEWEST, Window(3)),
            catalogue.targets(Window(1)),
            catalogue.audit(AuditFilter(), Window(5)),
            catalogue.studies(StudyFilter(), Window(1)).items,
            catalogue.standing("study-vision"),
        ]

    assert told(memory) == told(postgres)


def test_a_target_named_like_a_study_keeps_to_itself(backend: Backend) -> None:
    budget = registered(backend)
    backend.store.create_study(a_study(id="vision", plan=a_plan(target=a_target(), slo=budget)))

    assert backend.catalogue.standing("vision").summary.target == "vision"


# -- the ledger --------------------------------------------------------------------------------------------


def a_promotion(backend: Backend, name: str, hours: int) -> Study:
    """A study of a target of its own that ended with a promotion."""
    registered(backend, name)
    study = a_rich_study(id=f"{name}-night", plan=a_plan(target=a_target(name=name)))
    bare = replace(study, trials=(), pending=None)
    backend.store.create_study(bare)
    after = replace(ended(study, Outcome.PROMOTED), ended_at=at(3600 * hours))
    return append(backend.store, bare, after, granted(backend, name))


def test_the_ledger_has_every_promotion_with_its_worth_newest_first(backend: Backend) -> None:
    made = [a_promotion(backend, name, hours) for hours, name in enumerate(("vision", "speech", "search"))]

    found: list[LedgerLine] = walked(lambda window: backend.catalogue.ledger(None, window), 2)

    assert [line.study_id for line in found] == [study.id for study in reversed(made)]
    assert [line.worth for line in found] == [benefit(study) for study in reversed(made)]
    assert {(line.reason, line.currency, line.rolled_back_by) for line in found} == {
        ("nothing better", "USD", None)
    }
    (one,) = backend.catalogue.ledger("speech", Window()).items
    assert one.study_id == "speech-night"


def test_the_ledger_says_by_whom_a_promotion_was_taken_back(backend: Backend) -> None:
    promotion = a_promotion(backend, "vision", 1)
    back = reversal_of(promotion, promotion.plan.target, at(7200), "anna", "incident")
    first = replace(back, id="vision-night-rollback-1")
    backend.store.create_study(first)
    (asked,) = [each for each in backend.store.errands() if each.study_id == first.id]
    (line,) = backend.catalogue.ledger(None, Window()).items
    undone = append(backend.store, first, ended(first, Outcome.ROLLED_BACK), granted(backend, "vision"))
    (taken_back,) = backend.catalogue.ledger(None, Window()).items

    assert asked.restores
    assert line.rolled_back_by is None
    assert (taken_back.rolled_back_by, taken_back.rolled_back_at) == (undone.id, undone.ended_at)
    assert backend.store.study(first.id) == undone
