"""A database with a long history in it, made by the database itself: what lists are measured and planned on."""

from __future__ import annotations

import json
from dataclasses import replace

from sqlalchemy import Connection, Engine, text

from autotuner.domain.study import Phase, Study, Trial, TrialKind
from autotuner.records import study_text, to_record, trial_text
from tests.builders import a_plan, a_study, a_target
from tests.studies import a_rich_study, a_step, a_trial, ended, judged

TARGETS = 20
NIGHTS_EACH = 365

RICH = ("study-50", "study-1999")
"""Studies whose records hold all of their trials with evidence and whose journal has a line a minute, as all have in
production; here two are enough to read."""

LEVELS = 4
"""Judged levels of each of those trials."""


def record_history(engine: Engine, studies: int, trials_each: int) -> None:
    """Record 20 targets with schedules and a year of nights, their studies and trials, as many audit records as trials,
    and 5,000 tokens.
    """
    statements = filter(str.strip, _statements(studies, trials_each).split(";"))
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        _record_targets(connection)
        for statement in statements:
            connection.execute(text(statement))
        _record_studies(connection, trials_each)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("SET statement_timeout = 0"))
        connection.execute(text("VACUUM ANALYZE"))
    engine.dispose()


def _record_targets(connection: Connection) -> None:
    insert = text(
        "INSERT INTO targets (name, model, objective, record, created_at, changed_at, changed_by) "
        "VALUES (:name, 'm', 'capacity', :record, now(), now(), 'x')"
    )
    for number in range(TARGETS):
        target = a_target(name=f"target-{number}")
        connection.execute(insert, {"name": target.name, "record": json.dumps(to_record(target))})


def _record_studies(connection: Connection, trials_each: int) -> None:
    """Give every study the record of one that has ended, and the rich ones theirs."""
    for number in range(TARGETS):
        study = ended(a_study(plan=a_plan(target=a_target(name=f"target-{number}"))))
        _write_record(connection, study, "target = :name", study.plan.target.name)
    for study_id in RICH:
        rich = _rich(study_id, trials_each)
        _write_record(connection, rich, "id = :name", study_id)
        of_trial = text("UPDATE trials SET record = :record WHERE study_id = :study AND number = :number")
        rows = [
            {"study": study_id, "number": each.number, "record": trial_text(each)} for each in rich.trials
        ]
        connection.execute(of_trial, rows)


def _write_record(connection: Connection, study: Study, where: str, name: str) -> None:
    bare = replace(study, trials=(), phase=Phase.CREATED, outcome=None)
    values = {"initial": study_text(bare), "state": study_text(study), "name": name}
    connection.execute(text(f"UPDATE studies SET initial = :initial, state = :state WHERE {where}"), values)


def _rich(study_id: str, trials: int) -> Study:
    made = ended(a_rich_study())
    target = replace(made.plan.target, name=f"target-{int(study_id.rpartition('-')[2]) % TARGETS}")
    plan = replace(made.plan, target=target)
    return replace(made, id=study_id, plan=plan, trials=tuple(_judged(number) for number in range(trials)))


def _judged(number: int) -> Trial:
    kind = TrialKind.BASELINE if number == 0 else TrialKind.CANDIDATE
    trial = a_trial(number, kind=kind, steps=tuple(a_step(level) for level in range(LEVELS)))
    return replace(judged(trial), tail=None)


def _statements(studies: int, trials_each: int) -> str:
    rich = ", ".join(f"'{study_id}'" for study_id in RICH)
    return f"""
INSERT INTO slo_budgets SELECT name, 1, 0.1, 0.001, 0.5, 500, false, '{{}}', 'x', '', now() FROM targets;
INSERT INTO studies (id, target, slo_version, phase, outcome, reason, actor, seed, wish, sequence, initial, state,
                     created_at, ended_at)
SELECT 'study-' || s, 'target-' || s % {TARGETS}, 1, 'ended', CASE WHEN s % 50 = 0 THEN 'promoted' ELSE 'kept' END,
       '', 'x', 0, 'run', 0, '{{}}', '{{}}', timestamptz '2026-01-05 02:00Z' + s * interval '1 hour', now()
FROM generate_series(0, {studies - 1}) s;
INSERT INTO journal (study_id, sequence, kind, at, actor, reason, observed, state)
SELECT id, n, 'decision', timestamptz '2026-01-05 02:00Z' + n * interval '1 minute', 'worker', 'because', '{{}}', ''
FROM studies, generate_series(1, 5000) n WHERE id IN ({rich});
INSERT INTO schedules (target, cron, time_zone, window_seconds, jitter_seconds, blackout_dates, paused, set_by, set_at)
SELECT name, '0 2 * * *', 'UTC', 7200, 600, '{{}}', false, 'x', now() FROM targets;
INSERT INTO nights (target, name, due_at, state, reason, settled_at)
SELECT name, to_char(timestamptz '2025-01-05 02:00Z' + n * interval '1 day', 'YYYY-MM-DD"T"HH24:MI'),
       timestamptz '2025-01-05 02:00Z' + n * interval '1 day', 'missed', 'frozen', now()
FROM targets, generate_series(1, {NIGHTS_EACH}) n;
INSERT INTO trials (study_id, target, number, kind, state, replicas, max_queue_delay_microseconds,
                    preferred_batch_size, instance_count, max_batch_size, verdict, limited_by, reason,
                    capacity_per_second, harm_requests, proposed_at, ended_at)
SELECT 'study-' || s, 'target-' || s % {TARGETS}, n,
       CASE WHEN n = 0 THEN 'production' WHEN n = 1 THEN 'baseline' WHEN n = {trials_each - 1} AND s % 50 = 0
            THEN 'confirmation' ELSE 'candidate' END, 'judged', '{{canary}}', (n % 20) * 500, '{{4,8}}',
       1 + n % 4, 32,
       CASE WHEN n % 25 = 0 THEN 'void' WHEN n % 3 = 0 THEN 'reject' ELSE 'accept' END, 'ceiling', 'because',
       CASE WHEN n % 3 = 0 THEN NULL ELSE 100 + (s * 7 + n * 13) % 97 END, (s * 31 + n * 17) % 101,
       timestamptz '2026-01-05 02:00Z' + s * interval '1 hour' + n * interval '1 minute', now()
FROM generate_series(0, {studies - 1}) s, generate_series(0, {trials_each - 1}) n;
INSERT INTO audit (at, actor, action, subject, reason, details, previous_hash, hash)
SELECT timestamptz '2026-01-05 02:00Z' + a * interval '1 minute', 'actor-' || a % 200,
       CASE WHEN a % 500 = 0 THEN 'budget_loosened' ELSE 'weights_decided' END,
       'study-' || a / {trials_each}, '', '{{}}',
       'before ' || a, 'hash ' || a
FROM generate_series(0, {studies * trials_each - 1}) a;
INSERT INTO tokens SELECT 'id-' || t, encode(sha256(t::text::bytea), 'hex'), 'x', '{{viewer}}', '', now(), 'x',
       now() + interval '1 day' FROM generate_series(1, 5000) t;
"""
