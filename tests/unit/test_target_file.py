"""Target files: the documented example loads, and what cannot work is refused by field, value and what is allowed."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from autotuner.domain.study import Approval, Pace, StudyPlan
from autotuner.domain.target import Gateway, Objective, Replica
from autotuner.errors import InvalidInput
from autotuner.sections import InvalidFields, Section
from autotuner.target_file import load_target_file, parse_target_file

EXAMPLE = Path(__file__).parents[2] / "examples" / "target.yaml"

VALID: dict[str, Any] = {
    "name": "vision",
    "model": "small_vision",
    "stable": [
        {"name": "stable-0", "url": "http://a:8000", "metrics": "http://a:8002/metrics"},
        {"name": "stable-1", "url": "http://b:8000", "metrics": "http://b:8002/metrics"},
    ],
    "canary": {"name": "canary", "url": "http://c:8000", "metrics": "http://c:8002/metrics"},
    "gateway": {"admin": "http://d:9901", "runtime_prefix": "route.vision"},
    "slo": {"p99_ms": 100},
    "limits": {"instance_count": 4},
}

MISSING = object()


def changed(path: str, value: object) -> dict[str, Any]:
    """The valid content with one field (dotted path) set or, with `MISSING`, left out."""
    content = copy.deepcopy(VALID)
    *parents, last = path.split(".")
    section: Any = content
    for name in parents:
        section = section[int(name)] if isinstance(section, list) else section.setdefault(name, {})
    key: Any = int(last) if isinstance(section, list) else last
    if value is MISSING:
        del section[key]
    else:
        section[key] = value
    return content


def refusal(content: object) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        parse_target_file(content)
    return caught.value


def test_the_documented_example_loads_and_shows_the_defaults() -> None:
    shown = load_target_file(EXAMPLE)

    plan = shown.plan(shown.budget("me"))
    assert plan.pace == Pace()
    assert plan == StudyPlan(target=shown.target(), slo=plan.slo)


def test_the_documented_example_names_every_field() -> None:
    text = EXAMPLE.read_text("utf-8")
    example = load_target_file(EXAMPLE)
    parts = [example, example.canary, example.gateway, example.slo, example.limits, example.study]
    sections: list[Section] = [part for part in (*parts, example.study.pace) if part is not None]
    names = {name for section in sections for name in type(section).model_fields}

    assert {name for name in names if f"{name}:" not in text} == {"note"}


def test_what_a_file_says_becomes_target_budget_and_plan() -> None:
    content = changed(
        "study", {"approval": "manual", "max_trials": 3, "pace": {"warm_up": "1.5m", "settle": "250ms"}}
    )
    content |= {"objective": "efficiency", "cost": {"replica_per_hour": 2.5, "currency": "EUR"}}
    content["limits"] = {"instance_count": 2, "preferred_batch_sizes": [[], [4, 8]], "memory_headroom": 0.2}
    content["slo"] = {"p99_ms": 80, "error_ratio": 0.002, "reason": "as promised"}

    asked = parse_target_file(content)
    target, slo = asked.target(), asked.budget("me")
    plan = asked.plan(slo)

    assert target.stable == (
        Replica("stable-0", "http://a:8000", "http://a:8002/metrics"),
        Replica("stable-1", "http://b:8000", "http://b:8002/metrics"),
    )
    assert target.gateway == Gateway("http://d:9901", "route.vision", 1000)
    assert target.objective is Objective.EFFICIENCY
    assert (target.replica_cost_per_hour, target.currency) == (2.5, "EUR")
    assert target.limits.preferred_batch_sizes == ((), (4, 8))
    assert target.limits.memory_headroom == 0.2
    assert (slo.p99_ceiling_seconds, slo.error_ratio_ceiling, slo.actor, slo.reason) == (
        0.08,
        0.002,
        "me",
        "as promised",
    )
    assert (plan.approval, plan.max_trials) == (Approval.MANUAL, 3)
    assert (plan.pace.warm_up, plan.pace.settle) == (timedelta(seconds=90), timedelta(seconds=0.25))
    assert plan.pace.step_limit == Pace().step_limit


def test_a_queue_delay_that_is_left_out_may_be_as_long_as_the_ceiling() -> None:
    assert parse_target_file(VALID).target().limits.max_queue_delay_microseconds == 100_000


def test_a_reason_of_the_command_line_comes_first() -> None:
    asked = parse_target_file(changed("slo.reason", "from the file"))

    assert (asked.budget("me").reason, asked.budget("me", "typed").reason) == ("from the file", "typed")


def test_a_slash_at_the_end_of_a_url_is_no_difference() -> None:
    assert parse_target_file(changed("canary.url", "https://c/")).target().canary.http_url == "https://c"


@pytest.mark.parametrize(
    ("path", "value", "allowed"),
    [
        ("name", "Not a name", "lower-case letters, digits and hyphens"),
        ("name", False, "lower-case letters"),
        ("model", "", "the model's name"),
        ("stable", [], "at least one replica"),
        ("stable", {"name": "a"}, "at least one replica"),
        ("stable.1.url", "b:8000", "http://HOST:PORT"),
        ("stable.1.url", "ftp://b", "http://HOST:PORT"),
        ("stable.1.url", "http://", "http://HOST:PORT"),
        ("stable.1.url", "http://b:port", "http://HOST:PORT"),
        ("stable.1.url", "http://b:99999", "http://HOST:PORT"),
        ("stable.1.url", "http://b:0", "http://HOST:PORT"),
        ("stable.1.url", "http://b c", "http://HOST:PORT"),
        ("stable.1.url", "http://[::1", "http://HOST:PORT"),
        ("stable.1.url", "http://me:s3cret@b", "without user, password"),
        ("stable.1.url", 8000, "http://HOST:PORT"),
        ("canary.metrics", "http://c/metrics?x=1", "without user, password or query"),
        ("canary.name", "two words", "letters, digits"),
        ("gateway.runtime_prefix", "", "runtime_key_prefix"),
        ("gateway.total_weight", 1, "100 to 1000000"),
        ("slo.p99_ms", -100, "above 0"),
        ("slo.p99_ms", 0, "above 0"),
        ("slo.p99_ms", float("nan"), "above 0"),
        ("slo.p99_ms", float("inf"), "above 0"),
        ("slo.p99_ms", "100", "milliseconds"),
        ("slo.p99_ms", True, "milliseconds"),
        ("slo.error_ratio", 0, "above 0, up to 0.01"),
        ("slo.error_ratio", -0.1, "above 0, up to 0.01"),
        ("slo.max_canary_share", 0.96, "up to 0.95"),
        ("slo.harm_budget_requests", 0, "at least 1"),
        ("slo.harm_budget_requests", 10.5, "a whole number"),
        ("limits.instance_count", 0, "1 to 1000"),
        ("limits.max_queue_delay_microseconds", -1, "a whole number, 0 to"),
        ("limits.max_queue_delay_microseconds", 200_000, "at most slo.p99_ms, 100000 microseconds"),
        ("limits.preferred_batch_sizes", [], "a list of lists"),
        ("objective", "speed", "one of: capacity, efficiency"),
        ("study.max_trials", 0, "1 to 1000"),
        ("study.approval", "perhaps", "one of: automatic, manual"),
        ("study.sampler", "cmaes", "one of: greybox, tpe, gp, random"),
        ("study.seed", -1, "a whole number from 0"),
        ("study.pace.warm_up", 30, "with its unit"),
        ("study.pace.warm_up", "30", "with its unit"),
        ("study.pace.warm_up", "-30s", "with its unit"),
        ("study.pace.warm_up", "0s", "above 0"),
        ("study.pace.warm_up", "30 days", "with its unit"),
        ("study.pace.warm_up", "999h", "up to 7 days"),
        ("study.pace.warm_up", "9" * 400 + "h", "up to 7 days"),
        ("study.pace.step_minimum", "20m", "at most study.pace.step_limit, 600 s"),
        ("cost.replica_per_hour", 0, "an amount above 0"),
    ],
)
def test_a_bad_value_is_refused_by_field_and_value_with_what_is_allowed(
    path: str, value: object, allowed: str
) -> None:
    error = refusal(changed(path, value))

    assert error.field == path
    assert allowed in error.allowed
    assert str(error).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("path", "value", "hint"),
    [
        ("slo.error_ratio", 5, "5 % is 0.05"),
        ("slo.error_ratio", "5%", "5 % is 0.05"),
        ("slo.error_ratio", "0.1 %", "0.1 % is 0.001"),
        ("slo.max_canary_share", 85, "85 % is 0.85"),
        ("limits.memory_headroom", "10%", "10 % is 0.1"),
        ("study.minimum_gain", "5%", "5 % is 0.05"),
    ],
)
def test_a_percentage_is_refused_with_the_fraction_it_means(path: str, value: object, hint: str) -> None:
    error = refusal(changed(path, value))

    assert (error.field, error.value) == (path, value)
    assert f"a fraction, not a percentage: {hint}" in error.allowed


def test_a_fraction_that_is_only_too_large_is_not_taken_for_a_percentage() -> None:
    assert "percentage" not in refusal(changed("slo.error_ratio", 0.05)).allowed


@pytest.mark.parametrize("sizes", [[[4, 0]], [[4, -8]], [[4, 2.5]], [["4"]], [4], [[True]]])
def test_preferred_sizes_are_whole_batch_sizes(sizes: object) -> None:
    error = refusal(changed("limits.preferred_batch_sizes", sizes))

    assert error.field.startswith("limits.preferred_batch_sizes.0")
    assert "whole batch sizes from 1" in error.allowed


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("replicas", "stable"),
        ("slo.p99ms", "p99_ms"),
        ("stable.0.metrics_url", "metrics"),
        ("study.pace.warmup", "warm_up"),
        ("study.max_dispersion", "max_trials"),
    ],
)
def test_an_unknown_field_is_refused_with_the_known_ones(path: str, known: str) -> None:
    error = refusal(changed(path, 1))

    assert (error.field, error.value) == (path, 1)
    assert known in error.allowed


@pytest.mark.parametrize(
    "path",
    [
        "name",
        "model",
        "stable",
        "canary",
        "gateway",
        "slo",
        "limits",
        "slo.p99_ms",
        "canary.url",
        "stable.0.url",
    ],
)
def test_a_missing_field_is_named(path: str) -> None:
    error = refusal(changed(path, MISSING))

    assert error.field == path
    assert error.allowed.endswith("(required)")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("canary.name", "stable-0"),
        ("canary.url", "http://a:8000"),
        ("canary.url", "http://a:8000/"),
        ("stable.1.metrics", "http://a:8002/metrics"),
    ],
)
def test_no_server_stands_in_for_two_replicas(path: str, value: str) -> None:
    error = refusal(changed(path, value))

    assert error.field == path
    assert "than that of stable.0" in error.allowed


def test_all_problems_of_a_file_are_told_at_once() -> None:
    content = changed("slo", {"p99_ms": -1, "error_ratio": "5%"}) | {"nmae": 1}

    error = refusal(content)

    assert isinstance(error, InvalidFields)
    assert [problem.field for problem in error.problems] == ["slo.p99_ms", "slo.error_ratio", "nmae"]
    assert len(str(error).splitlines()) == 3
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: a\nname: b\n", "line 2, column 1: the key 'name' is written twice"),
        ("slo: {p99_ms: 1, p99_ms: 2}\n", "the key 'p99_ms' is written twice"),
        ("name: [unclosed", "line 1"),
        ("name: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("? [a]\n: 1\n", "found unhashable key"),
        ("[" * 5000, ""),
    ],
    ids=["twice", "twice inside", "unclosed", "unsafe", "unhashable", "deep"],
)
def test_a_file_that_is_not_plain_yaml_is_refused_with_its_place(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "target.yaml"
    path.write_text(text)

    with pytest.raises(InvalidInput) as caught:
        load_target_file(path)

    assert caught.value.field == "target file"
    assert problem in caught.value.allowed
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, [], "text", 5])
def test_a_file_that_is_no_mapping_is_refused_with_the_fields(content: object) -> None:
    assert "a mapping with the fields name, model, stable" in refusal(content).allowed


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")

    for path in (tmp_path / "absent.yaml", tmp_path, binary):
        with pytest.raises(InvalidInput, match="a readable text file"):
            load_target_file(path)
