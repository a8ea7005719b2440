-- Rows as the first revision held them. Never edit: add a file for a later revision instead.
INSERT INTO targets (name, model, objective, record, created_at, changed_at, changed_by)
VALUES ('vision', 'small_vision', 'capacity', '{"name": "vision", "note": "naïve"}',
        '2026-01-05 02:00:00+00', '2026-01-05 03:00:00+00', 'operator');
INSERT INTO slo_budgets (target, version, p99_ceiling_seconds, error_ratio_ceiling, max_canary_share,
        harm_budget_requests, loosened, loosened_fields, actor, reason, created_at)
VALUES ('vision', 1, 0.1, 0.001, 0.85, 200, false, '{}', 'operator', '', '2026-01-05 02:00:00+00'),
       ('vision', 2, 0.2, 0.001, 0.85, 200, true, '{p99_ceiling_seconds}', 'bob', 'agreed', '2026-01-06 02:00:00+00');
INSERT INTO studies (id, target, slo_version, phase, outcome, reason, actor, seed, wish, sequence, initial, state,
        created_at, ended_at)
VALUES ('study-1', 'vision', 1, 'ended', 'kept', 'nothing better', 'operator', 7, 'run', 1,
        '{"rate": 0.30000000000000004}', '{"rate":  1e-300}', '2026-01-05 02:00:00+00', '2026-01-05 04:00:00+00'),
       ('study-2', 'vision', 2, 'search', NULL, '', 'operator', 8, 'pause', 0,
        '{}', '{}', '2026-01-06 02:00:00+00', NULL);
INSERT INTO journal (study_id, sequence, kind, at, actor, reason, observed, action, state)
VALUES ('study-1', 1, 'decision', '2026-01-05 02:00:01.123456+00', 'worker-1', 'because', '{"a": 1}', NULL, 'abc');
INSERT INTO trials (study_id, number, kind, state, replicas, max_queue_delay_microseconds, preferred_batch_size,
        instance_count, max_batch_size, verdict, limited_by, reason, capacity_per_second, harm_requests, proposed_at,
        ended_at)
VALUES ('study-1', 0, 'baseline', 'judged', '{canary}', 0, '{4,8}', 1, 32, 'accept', 'traffic', 'held', 276.5, 1.25,
        '2026-01-05 02:00:02+00', '2026-01-05 02:10:00+00');
INSERT INTO steps (study_id, trial_number, position, level_number, share, attempt, started_at, ended_at,
        candidate_requests, candidate_bad_at_most, candidate_bad_at_least, candidate_failed,
        control_requests, control_bad_at_most, control_bad_at_least, control_failed,
        rate_per_second, total_rate_per_second, harm_requests, verdict, estimate, interval_low, interval_high,
        dispersion, log_e_accept, log_e_reject, reason)
VALUES ('study-1', 0, 0, 0, 0.333, 0, '2026-01-05 02:01:00+00', '2026-01-05 02:02:00+00',
        1300, 3, 2, 1, 2600, 4, 3, 0, 166.5, 500.1, 0.5, 'accept', 0.002, 0.0001, 0.009, 1.0, 4.7, -3.2, 'held');
INSERT INTO leases (target, holder, session, token, expires_at)
VALUES ('vision', 'worker-1', 'abcdef', 41, '2026-01-05 02:00:15+00');
INSERT INTO audit (at, actor, action, subject, reason, details, previous_hash, hash)
VALUES ('2026-01-05 02:00:00+00', 'operator', 'study_started', 'study-1', '', '{"seed": 7}', repeat('0', 64),
        repeat('a', 64));
