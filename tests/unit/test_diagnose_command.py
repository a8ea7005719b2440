"""`autotuner diagnose` against servers that answer, or answer oddly: one sentence and a documented exit code."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from autotuner.adapters.scrape import observer, serving
from autotuner.cli import diagnose
from autotuner.cli.app import app
from autotuner.cli.exits import Exit
from tests.command_line import TARGET
from tests.diagnoses import CONFIG, MODEL, a_config
from tests.stub_server import Planned, StubServer
from tests.stub_triton import (
    CONFIG_PATH,
    METADATA,
    METRICS,
    STATS,
    a_triton,
    as_json,
    counting,
    metrics,
    statistics,
)

pytestmark = pytest.mark.usefixtures("own_logging", "turned")

KEYS = {"findings", "breakdown_ms", "realised_batch", "prediction", "study_possible"}


@pytest.fixture
def triton() -> Iterator[StubServer]:
    with a_triton() as server:
        yield server


def run(server: StubServer, *more: str, model: str = MODEL, metrics_url: str | None = None) -> Result:
    arguments = ["diagnose", "--triton", server.url, "--p99", "100ms", "--for", "2s"]
    arguments += ["--metrics", metrics_url or f"{server.url}{METRICS}"]
    arguments += ["--model", model] if model else []
    return CliRunner().invoke(app, [*arguments, *more])


def answered(result: Result) -> dict[str, Any]:
    assert result.exit_code == Exit.DONE, result.stderr
    found: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
    return found


def sentence(result: Result) -> str:
    """The one sentence that an error is."""
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, result.stderr
    assert "unexpected" not in lines[0]
    return lines[0]


# -- servers that answer


def test_the_json_has_the_documented_keys(triton: StubServer) -> None:
    found = answered(run(triton, "--json", "--gpu-cost", "4.5"))

    assert set(found) >= KEYS
    assert {"kind", "confidence", "evidence", "remedy"} == set(found["findings"][0])
    assert found["breakdown_ms"]["queue"]["mean"] == pytest.approx(2.0)
    assert found["breakdown_ms"]["before_triton"]["mean"] is None
    assert found["breakdown_ms"]["total"]["p99"] == pytest.approx(30.0)
    assert found["realised_batch"]["mean"] == 1.0
    assert found["realised_batch"]["configured"] == 32
    assert found["prediction"]["possible"] is True
    assert found["prediction"]["cost_per_million"]["currency"] == "USD"
    assert found["study_possible"]["missing"]


def test_nothing_but_questions_is_sent(triton: StubServer) -> None:
    answered(run(triton, "--json"))

    assert {request.split(" ")[0] for request in triton.requests} == {"GET"}
    assert not [request for request in triton.requests if "infer" in request or "repository" in request]


def test_people_get_findings_a_bar_and_a_prediction(triton: StubServer, tmp_path: Path) -> None:
    result = run(triton, "--html", str(tmp_path / "page.html"))

    assert result.exit_code == Exit.DONE, result.stderr
    for words in (
        "Where a request's time goes",
        "What tuning would be worth",
        "Could a study run here?",
        "device busy / memory: not told / not told",
        "arrivals: ",
        f"│ {'█' * 20} │",
    ):
        assert words in result.stdout
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "<svg" in page


def test_a_page_that_cannot_be_written_is_refused_before_anybody_looks(
    triton: StubServer, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")

    result = run(triton, "--html", str(tmp_path / "file" / "page.html"))

    assert result.exit_code == Exit.INVALID_INPUT
    assert "--html" in sentence(result)
    assert triton.requests == []


def test_the_busiest_model_is_looked_at_where_none_is_named(triton: StubServer) -> None:
    found = answered(run(triton, "--json", model=""))

    assert found["model"] == MODEL
    assert "2 models" in found["unread"][0]["lost"]


def test_headers_are_sent_with_every_question_and_may_stand_in_a_file(
    triton: StubServer, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("Bearer s3cret\n")
    result = run(triton, "--json", "--header", f"Authorization: @{tmp_path / 'token'}")

    assert answered(result)["model"] == MODEL
    assert "s3cret" not in result.stdout + result.stderr


def test_an_idle_window_ends_with_its_own_code(triton: StubServer) -> None:
    triton.answers[STATS] = as_json({"model_stats": [statistics(500)]})
    triton.answers[METRICS] = Planned(metrics(500))
    result = run(triton, "--json")

    assert result.exit_code == Exit.INCONCLUSIVE
    found = json.loads(result.stdout)
    assert found["findings"][0]["kind"] == "idle"
    assert found["prediction"]["possible"] is False
    assert found["prediction"]["needed"] == ["a window with traffic"]


def test_old_statistics_without_newer_fields_are_enough(triton: StubServer) -> None:
    def old(count: int) -> str:
        told = statistics(count)
        del told["inference_stats"]["fail"], told["batch_stats"]
        return json.dumps({"model_stats": [told]})

    triton.answers[STATS] = counting(old)
    found = answered(run(triton, "--json"))

    assert found["breakdown_ms"]["queue"]["mean"] == pytest.approx(2.0)
    assert "no times by batch size" in found["prediction"]["why_not"]


def test_several_replicas_are_looked_at_together_and_one_that_goes_away_is_left_out(
    triton: StubServer,
) -> None:
    with a_triton() as other:
        more = ("--triton", other.url, "--metrics", f"{other.url}{METRICS}")
        both = answered(run(triton, "--json", *more))
        asked = itertools.count()
        other.answers[STATS] = lambda _: (
            as_json({"model_stats": [statistics(10)]}) if next(asked) < 3 else Planned("", status=503)
        )
        one = answered(run(triton, "--json", *more))

    assert len(both["replicas"]) == 2
    assert set(one["replicas"]) == {triton.url.removeprefix("http://")}


def test_a_reload_in_between_is_survived_and_named(triton: StubServer) -> None:
    counts = iter([500, 520, 540, *range(0, 4000, 20)])
    triton.answers[STATS] = lambda _: as_json({"model_stats": [statistics(next(counts))]})
    found = answered(run(triton, "--json"))

    assert next(iter(found["replicas"].values()))["reloads"] == 1
    assert "cold_start" in [one["kind"] for one in found["findings"]]
    assert "loaded anew" in found["prediction"]["why_not"]


def a_target_of(server: StubServer, folder: Path, **changes: Any) -> Path:
    """A target file whose only stable replica is the stub."""
    stable = {"name": "stable-0", "url": server.url, "metrics": f"{server.url}{METRICS}"}
    path = folder / "target.yaml"
    content = {**TARGET, "model": MODEL, "stable": [stable], **changes}
    path.write_text(yaml.safe_dump(content), "utf-8")
    return path


def test_a_target_file_names_everything(triton: StubServer, tmp_path: Path) -> None:
    page = "".join(
        f'envoy_cluster_upstream_rq_time_bucket{{envoy_cluster_name="stable-0",le="{edge}"}} 5\n'
        for edge in ("99.5", "+Inf")
    )
    page += 'envoy_cluster_upstream_rq_total{envoy_cluster_name="stable-0"} 5\n'
    page += 'envoy_cluster_upstream_rq_active{envoy_cluster_name="stable-0"} 0\n'
    triton.answers["/stats/prometheus"] = Planned(page)
    triton.answers["/config_dump"] = as_json({"routes": [{"weighted_clusters": {"runtime_key_prefix": "r"}}]})
    gateway = {"admin": triton.url, "runtime_prefix": "r"}
    file = a_target_of(triton, tmp_path, gateway=gateway)
    result = CliRunner().invoke(app, ["diagnose", "--target", str(file), "--for", "2s", "--json"])

    found = answered(result)
    assert found["p99_ceiling_ms"] == TARGET["slo"]["p99_ms"]
    assert set(found["replicas"]) == {"stable-0"}
    needs = {need["what"]: need["answer"] for need in found["study_possible"]["needs"]}
    assert needs["a weighted route"] == "yes"
    assert needs["a histogram edge at the ceiling"] == "yes"


def test_a_target_file_and_a_server_exclude_one_another(triton: StubServer, tmp_path: Path) -> None:
    result = run(triton, "--target", str(a_target_of(triton, tmp_path)))

    assert result.exit_code == Exit.INVALID_INPUT
    assert sentence(result).startswith("error: --triton: ")


def test_a_gateway_that_is_no_envoy_is_one_sentence(triton: StubServer) -> None:
    triton.answers["/stats/prometheus"] = Planned("<html>nginx")
    result = run(triton, "--gateway", triton.url)

    assert result.exit_code == Exit.UNAVAILABLE
    assert "does not answer as an Envoy would" in sentence(result)


# -- what is lost, and what is said about it


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (Planned(metrics(500).replace('version="1"} 500\n', 'version="1"} NaN\n')), "nan"),
        (Planned(metrics(500)[:-7]), "cut off"),
        (Planned("<!doctype html><p>login"), "web page"),
        (Planned("", status=404), "http 404"),
        (Planned(""), "empty"),
        (Planned("a b c d\n"), "no metric"),
    ],
)
def test_metrics_that_cannot_be_believed_are_left_out_and_told(
    triton: StubServer, page: Planned, said: str
) -> None:
    triton.answers[METRICS] = page
    found = answered(run(triton, "--json"))

    (finding,) = [one for one in found["findings"] if one["kind"] == "misconfiguration"]
    assert said in finding["evidence"][0].lower()
    assert found["breakdown_ms"]["total"]["p99"] is None
    assert found["findings"][0]["kind"] == "healthy"


def test_restricted_statistics_are_replaced_by_metrics_as_far_as_they_go(triton: StubServer) -> None:
    triton.answers[STATS] = Planned(
        json.dumps({"error": "This API is restricted, expecting header 'admin-key'"}), status=403
    )
    found = answered(run(triton, "--json"))

    assert found["breakdown_ms"]["queue"]["mean"] == pytest.approx(2.0)
    assert found["realised_batch"]["histogram"] == []
    assert any("restricts its inference statistics" in one["why"] for one in found["unread"])


def test_a_restricted_configuration_costs_the_prediction_alone(triton: StubServer) -> None:
    triton.answers[CONFIG_PATH] = Planned(
        json.dumps({"error": "This API is restricted, expecting header 'k'"}), status=403
    )
    found = answered(run(triton, "--json"))

    assert "configuration could not be read" in found["prediction"]["why_not"]
    assert found["breakdown_ms"]["total"]["mean"] == pytest.approx(12.5)


def test_restricted_metadata_cost_the_version_alone(triton: StubServer) -> None:
    triton.answers["/v2"] = Planned(json.dumps({"error": "This API is restricted"}), status=403)
    found = answered(run(triton, "--json"))

    assert next(iter(found["replicas"].values()))["triton"] is None


# -- what cannot be diagnosed


@pytest.mark.parametrize(
    ("path", "answer", "code", "said"),
    [
        ("/v2", Planned("<html>hello"), Exit.UNAVAILABLE, "web page"),
        ("/v2", Planned("hello"), Exit.UNAVAILABLE, "not JSON"),
        ("/v2", as_json([1, 2]), Exit.UNAVAILABLE, "not Triton's"),
        ("/v2", as_json({"status": "fine"}), Exit.UNAVAILABLE, "not those of a Triton"),
        ("/v2", Planned("", status=302, headers={"Location": "/v2"}), Exit.UNAVAILABLE, "redirect to /v2"),
        ("/v2", Planned("", status=502), Exit.UNAVAILABLE, "HTTP 502"),
        ("/v2", Planned('{"name": "triton"', promised=4000), Exit.UNAVAILABLE, "broke off"),
        (STATS, Planned("{}"), Exit.UNAVAILABLE, "unknown form"),
        (
            STATS,
            Planned('{"model_stats": [{"name": "vision", "inference_count": NaN}]}'),
            Exit.UNAVAILABLE,
            "nan",
        ),
        (
            STATS,
            Planned(f'{{"model_stats": [{{"name": "vision", "inference_count": 1{"0" * 400}}}]}}'),
            Exit.UNAVAILABLE,
            "unknown form",
        ),
        (
            CONFIG_PATH,
            as_json(a_config(instance_group=["x"])),
            Exit.UNAVAILABLE,
            "instance_group has no form",
        ),
        (
            CONFIG_PATH,
            as_json(a_config(response_cache=["on"])),
            Exit.UNAVAILABLE,
            "response_cache has no form",
        ),
        (
            CONFIG_PATH,
            Planned(json.dumps({"error": "Request for unknown model: 'vision' is not found"}), status=400),
            Exit.NOT_FOUND,
            "no model is known as 'vision'",
        ),
    ],
)
def test_each_odd_answer_ends_in_one_sentence_and_a_code(
    triton: StubServer, path: str, answer: Planned, code: Exit, said: str
) -> None:
    triton.answers[path] = answer
    triton.answers[METRICS] = Planned("", status=404)
    result = run(triton)

    assert result.exit_code == code, result.stderr
    assert said in sentence(result)


def test_401_everywhere_asks_for_credentials(triton: StubServer) -> None:
    for path in triton.answers:
        triton.answers[path] = Planned("", status=401)
    result = run(triton)

    assert result.exit_code == Exit.REFUSED
    assert "--header" in sentence(result)


def test_a_slow_server_is_given_up(triton: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "DEADLINE", timedelta(seconds=0.3))
    monkeypatch.setattr(serving.HttpServing, "limit", timedelta(seconds=0.3))
    triton.answers["/v2"] = Planned(hang=True)
    result = run(triton)

    assert result.exit_code == Exit.UNAVAILABLE
    assert "no answer within" in sentence(result)


def test_nothing_there_is_one_sentence() -> None:
    arguments = [
        "diagnose",
        "--triton",
        "http://127.0.0.1:9",
        "--p99",
        "100ms",
        "--for",
        "2s",
        "--model",
        "m",
    ]
    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == Exit.UNAVAILABLE
    assert "nothing accepts connections" in sentence(result)


def test_ten_thousand_models_are_no_trouble(triton: StubServer) -> None:
    names = [f"model-{number:05d}" for number in range(10_000)]
    everything = [statistics(1, name) for name in names] + [statistics(5000)]
    triton.answers["/v2/models/stats"] = as_json({"model_stats": everything})
    pages = "".join(metrics(1, name) for name in names)
    triton.answers[METRICS] = counting(lambda count: pages + metrics(count), each=80)
    found = answered(run(triton, "--json", model=""))

    assert found["model"] == MODEL
    assert "10001 models" in found["unread"][0]["lost"]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--p99", "50ms"], "--triton"),
        (["--triton", "http://x:8000"], "--p99"),
        (["--triton", "ftp://x", "--p99", "50ms"], "--triton"),
        (["--triton", "http://me:secret@x:8000", "--p99", "50ms"], "--triton"),
        (["--triton", "http://x:8000", "--p99", "50"], "--p99"),
        (["--triton", "http://x:8000", "--p99", "0s"], "--p99"),
        (["--triton", "http://x:8000", "--p99", "50ms", "--for", "1s"], "--for"),
        (["--triton", "http://x:8000", "--p99", "50ms", "--for", "2h"], "--for"),
        (["--triton", "http://x:8000", "--p99", "50ms", "--gpu-cost", "-1"], "--gpu-cost"),
        (["--triton", "http://x:8000", "--p99", "50ms", "--header", "nonsense"], "--header"),
        (["--triton", "http://x:8000", "--p99", "50ms", "--header", "A: @/no/such/file"], "--header"),
        (["--triton", "http://x:8000", "--p99", "50ms", "--header", "A: “quoted”"], "--header"),
        (["--triton", "http://x:8000", "--p99", "50ms", "--ca", "/no/such/file"], "--ca"),
        (["--triton", "http://x:8000", "--triton", "http://x:8000", "--p99", "50ms"], "--triton"),
        (
            ["--triton", "http://x:8000", "--p99", "50ms", "--metrics", "http://a", "--metrics", "http://b"],
            "--metrics",
        ),
        (["--triton", "http://x:8000", "--p99", "50ms", "--gateway", "envoy:9901"], "--gateway"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(arguments: list[str], field: str) -> None:
    result = CliRunner().invoke(app, ["diagnose", *arguments])

    assert result.exit_code == Exit.INVALID_INPUT, result.stderr
    assert sentence(result).startswith(f"error: {field}: ")


@pytest.mark.parametrize(
    ("url", "metrics_url", "name"),
    [
        ("http://triton:8000", "http://triton:8002/metrics", "triton:8000"),
        ("https://triton", "https://triton:8002/metrics", "triton"),
        ("http://triton:9000", "http://triton:9002/metrics", "triton:9000"),
        ("grpc://triton:8001", "http://triton:8002/metrics", "triton:8001"),
        ("grpcs://triton", "https://triton:8002/metrics", "triton"),
    ],
)
def test_metrics_are_looked_for_beside_the_usual_port(url: str, metrics_url: str, name: str) -> None:
    (place,) = diagnose._servers([url], [])

    assert (place.metrics_url, place.name) == (metrics_url, name)


def test_metadata_of_the_stub_are_a_tritons() -> None:
    assert METADATA["name"] == "triton"
    assert CONFIG["name"] == MODEL
