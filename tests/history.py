"""A database with a long history in it, made by the database itself: what lists are measured and planned on."""

from __future__ import annotations

from sqlalchemy import Engine, text


def record_history(engine: Engine, studies: int, trials_each: int) -> None:
    """Record 20 targets, their studies and trials, as many audit records as trials, and 5,000 tokens."""
    statements = filter(str.strip, _statements(studies, trials_each).split(";"))
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        for statement in statements:
            connection.execute(text(statement))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("SET statement_timeout = 0"))
        connection.execute(text("VACUUM ANALYZE"))
    engine.dispose()


def _statements(studies: int, trials_each: int) -> str:
    return f"""
INSERT INTO targets (name, model, objective, record, created_at, changed_at, changed_by)
SELECT 'target-' || t, 'm', 'capacity', '{{}}', now(), now(), 'x' FROM generate_series(0, 19) t;
INSERT INTO slo_budgets SELECT name, 1, 0.1, 0.001, 0.5, 500, false, '{{}}', 'x', '', now() FROM targets;
INSERT INTO studies (id, target, slo_version, phase, outcome, reason, actor, seed, wish, sequence, initial, state,
                     created_at, ended_at)
SELECT 'study-' || s, 'target-' || s % 20, 1, 'ended', CASE WHEN s % 50 = 0 THEN 'promoted' ELSE 'kept' END, '', 'x',
       0, 'run', 0, '{{}}', '{{}}', timestamptz '2026-01-05 02:00Z' + s * interval '1 hour', now()
FROM generate_series(0, {studies - 1}) s;
INSERT INTO trials (study_id, target, number, kind, state, replicas, max_queue_delay_microseconds,
                    preferred_batch_size, instance_count, max_batch_size, verdict, limited_by, reason,
                    capacity_per_second, harm_requests, proposed_at, ended_at)
SELECT 'study-' || s, 'target-' || s % 20, n, 'candidate', 'judged', '{{canary}}', (n % 20) * 500, '{{4,8}}',
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
