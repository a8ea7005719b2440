"""Pictures of the dashboards, filled by a real night of the local stack: `docs/images/dashboard-*.png`.

    python -m scripts.dashboard_pictures [FOLDER]

It takes a Prometheus, a Chromium and about twelve minutes. The service of `autotuner serve --sandbox` runs with its
API, worker and scheduler; a Prometheus with the rules scrapes them, the gateway and the servers. A schedule starts a
short study; when production has been held against the new certificate, every panel of every dashboard's JSON is asked
and drawn. Panels without data are named at the end.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import yaml
from playwright.sync_api import sync_playwright

from api.server import serve
from autotuner.bootstrap import Application
from autotuner.cli.playground import Playground, playground
from autotuner.domain.registration import Wanted
from autotuner.domain.slo import SloBudget
from autotuner.domain.target import Target
from autotuner.sandbox.processes import ManagedProcess, free_port, wait_until
from autotuner.targets import Asked, register
from scripts.monitoring.drawing import WIDTH, Span, picture, without_data
from scripts.monitoring.files import ROOT, files

IMAGES = ROOT / "docs" / "images"
HOST = "127.0.0.1"
SCRAPED_EVERY = "2s"
TRIALS, RAMP_STEPS = 2, 4
"""As in `autotuner demo --short`."""

FIRST_NIGHT = timedelta(seconds=70)
"""A cron expression has minutes: the next one whole is less than two away."""

NIGHT_WITHIN = timedelta(minutes=15)
COVERED_WITHIN = timedelta(minutes=11)
"""Production's load is known at the second look of the scheduler, which looks every five minutes."""

SEEN_FOR = timedelta(seconds=20)
"""So long at the end, that the last points of the pictures show it."""

POLL = timedelta(seconds=2)
EVERY_NIGHT = "30 2 * * *"


def main(arguments: Sequence[str]) -> None:
    """Run the stack, fill the dashboards and draw them."""
    folder = Path(arguments[0]) if arguments else IMAGES
    with ExitStack() as opened:
        place = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="dashboards-")))
        ground = opened.enter_context(playground(""))
        api = opened.enter_context(_served(ground.app))
        client = opened.enter_context(
            httpx.Client(base_url=api, headers={"authorization": f"Bearer {ground.secret}"}, timeout=20)
        )
        made = _monitoring(ground, place)
        prometheus = opened.enter_context(_prometheus(place, _jobs(ground, api), made))
        begin = time.time()
        _shorten(ground)
        _spend_a_night(client, ground.target)
        _be_covered(client, ground.target, prometheus)
        span = Span(begin, time.time())
        dashboards = {
            Path(name).stem: json.loads(text) for name, text in made.items() if name.startswith("dashboards/")
        }
        for name, dashboard in dashboards.items():
            path = folder / f"dashboard-{'target' if name == ground.target else name}.png"
            _photograph(picture(prometheus, dashboard, span), path)
            print(path, "without data:", without_data(prometheus, dashboard, span) or "nothing")


# -- the service and its Prometheus


@contextmanager
def _served(app: Application) -> Iterator[str]:
    """Serve the API in a thread; gives its address."""
    stop, started, told = threading.Event(), threading.Event(), list[str]()

    def tell(address: str) -> None:
        told.append(address)
        started.set()

    thread = threading.Thread(target=serve, args=(app, stop, tell, HOST, 0), name="api")
    thread.start()
    try:
        if not started.wait(30):
            raise TimeoutError("the API does not start")
        yield told[0]
    finally:
        stop.set()
        thread.join()


def _monitoring(ground: Playground, place: Path) -> Mapping[str, str]:
    """Dashboards and rules of the sandbox's target, as `python -m scripts.monitoring` writes them for any."""
    found = ground.app.registry.registration(ground.target)
    path = place / "target.yaml"
    path.write_text(yaml.safe_dump(_target_file(found.target, found.slo)), "utf-8")
    made = files(path)
    for name, text in made.items():
        written = place / name
        written.parent.mkdir(exist_ok=True)
        written.write_text(text, "utf-8")
    return made


def _target_file(target: Target, slo: SloBudget) -> Mapping[str, Any]:
    replicas = [
        {"name": each.name, "url": each.http_url, "metrics": each.metrics_url} for each in target.replicas
    ]
    canary = next(each for each in replicas if each["name"] == target.canary.name)
    return {
        "name": target.name,
        "model": target.model,
        "stable": [each for each in replicas if each is not canary],
        "canary": canary,
        "gateway": {"admin": target.gateway.admin_url, "runtime_prefix": target.gateway.runtime_prefix},
        "slo": {"p99_ms": slo.p99_ceiling_seconds * 1e3},
        "limits": {"instance_count": target.limits.max_instance_count},
    }


def _jobs(ground: Playground, api: str) -> list[Mapping[str, Any]]:
    target = ground.app.registry.registration(ground.target).target
    bearer = {"authorization": {"credentials": ground.secret}}
    emulated = {
        "source_labels": ["__name__"],
        "regex": "emulated_(gpu_memory_.*)",
        "target_label": "__name__",
        "replacement": "nv_$1",
    }
    servers = [
        {**_job(each.name, each.metrics_url), "metric_relabel_configs": [emulated]}
        for each in target.replicas
    ]
    beside = [_job(name, url) for name, url in ground.metrics.items()]
    gateway = _job("gateway", f"{target.gateway.admin_url}/stats/prometheus")
    return [{**_job("api", f"{api}/metrics"), **bearer}, *beside, gateway, *servers]


def _job(name: str, url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    told = {"targets": [parts.netloc], "labels": {"instance": name}}
    return {"job_name": name, "metrics_path": parts.path, "static_configs": [told]}


@contextmanager
def _prometheus(place: Path, jobs: Sequence[Mapping[str, Any]], made: Mapping[str, str]) -> Iterator[str]:
    """A Prometheus that scrapes all of it and computes the recording rules; gives its URL."""
    told = {
        "global": {"scrape_interval": SCRAPED_EVERY, "evaluation_interval": SCRAPED_EVERY},
        "rule_files": [str(place / name) for name in made if name.startswith("rules/")],
        "scrape_configs": list(jobs),
    }
    configuration, url = place / "prometheus.yml", f"http://{HOST}:{free_port()}"
    configuration.write_text(json.dumps(told), "utf-8")
    process = ManagedProcess(
        "Prometheus",
        [
            "prometheus",
            f"--config.file={configuration}",
            f"--storage.tsdb.path={place / 'data'}",
            f"--web.listen-address={urlsplit(url).netloc}",
            "--log.level=error",
        ],
        place / "prometheus.log",
    )
    process.start()
    try:
        wait_until(
            lambda: _answers(f"{url}/-/ready"),
            within=timedelta(seconds=30),
            what="Prometheus is ready",
            process=process,
        )
        yield url
    finally:
        process.stop()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).is_success
    except httpx.HTTPError:
        return False


# -- the night


def _shorten(ground: Playground) -> None:
    """Let studies of the target try fewer configurations at fewer levels."""
    app = ground.app
    found = app.registry.registration(ground.target)
    defaults = replace(found.defaults, max_trials=TRIALS, ramp_steps=RAMP_STEPS)
    wanted = Wanted(found.target, None, defaults)
    register(app.registry, app.clock, wanted, Asked("dashboards", "a short night", found.mark))


def _spend_a_night(client: httpx.Client, target: str) -> None:
    """Let a schedule start a study, and wait until it has ended."""
    due = datetime.now(UTC) + FIRST_NIGHT
    _schedule(client, target, f"{due.minute} {due.hour} * * *")

    def ended() -> bool:
        nights = _seen(client, target)
        return any(each["state"] == "ended" for each in nights)

    wait_until(ended, within=NIGHT_WITHIN, what="the night has ended", poll=POLL)
    print("the night:", _seen(client, target))


def _be_covered(client: httpx.Client, target: str, prometheus: str) -> None:
    """Wait until the scheduler has held production against the certificate; a new schedule is looked at at once."""
    path = f"/v1/targets/{target}/schedule"
    mark = client.get(path).raise_for_status().headers["etag"]
    client.delete(path, headers={"if-match": mark}).raise_for_status()
    state = f'max by (state) (autotuner_certificate_state{{target="{target}"}}) > 0'

    def found() -> list[str]:
        _seen(client, target)
        asked = httpx.get(f"{prometheus}/api/v1/query", params={"query": state}, timeout=20)
        return [each["metric"]["state"] for each in asked.raise_for_status().json()["data"]["result"]]

    wait_until(lambda: not found(), within=timedelta(minutes=1), what="the schedule is gone", poll=POLL)
    _schedule(client, target, EVERY_NIGHT)
    wait_until(
        lambda: "covers" in found() or "outside" in found(),
        within=COVERED_WITHIN,
        what="production has been held against its certificate",
        poll=POLL,
    )
    seen_until = time.monotonic() + SEEN_FOR.total_seconds()
    wait_until(
        lambda: bool(found()) and time.monotonic() > seen_until,
        within=2 * SEEN_FOR,
        what="that was seen for a while",
        poll=POLL,
    )


def _schedule(client: httpx.Client, target: str, cron: str) -> None:
    asked = {"cron": cron, "window": "1h", "reason": "for the dashboards"}
    client.put(f"/v1/targets/{target}/schedule", json=asked).raise_for_status()


def _seen(client: httpx.Client, target: str) -> list[dict[str, Any]]:
    """The nights so far; asks what a person's browser and a probe would ask too."""
    for path in ("/readyz", "/v1/studies"):
        client.get(path).raise_for_status()
    answer = client.get("/v1/nights", params={"target": target}).raise_for_status()
    nights: list[dict[str, Any]] = answer.json()["items"]
    return nights


# -- the pictures


def _photograph(drawn: str, path: Path) -> None:
    program = next(
        (
            found
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (found := shutil.which(name))
        ),
        None,
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 800}, color_scheme="light")
        page.set_content(f"<style>body{{margin:0}} svg{{display:block}}</style>{drawn}")
        page.locator("svg").screenshot(path=path)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
