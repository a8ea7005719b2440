"""`autotuner diagnose`: what is wrong with this Triton, read and never touched."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

import typer

from autotuner.adapters.clock import SystemClock
from autotuner.bootstrap import access_of, observer_of, secrets_of, target_observer
from autotuner.cli.counted_by import PRESETS, USUAL_PRESET, PrometheusAsked, instrumentation
from autotuner.cli.diagnosis_lines import print_diagnosis
from autotuner.cli.durations import duration
from autotuner.cli.exits import Exit
from autotuner.cli.invocation import Invocation, Json, of, say
from autotuner.diagnosing import LENGTH_ALLOWED, USUAL, Asked, Deployment, ServerPlace
from autotuner.diagnosing import diagnose as diagnosed
from autotuner.diagnosis_answers import diagnosis_object
from autotuner.domain.findings.prediction import Wish
from autotuner.domain.target import Objective
from autotuner.errors import InvalidInput
from autotuner.instruments.devices import TRITON
from autotuner.ports import Clock, Observer
from autotuner.report.diagnosis import render
from autotuner.report.page import check_place, write_page
from autotuner.section_values import duration_text
from autotuner.target_file import TargetFile, load_target_file

SCHEMES = {"http": 8000, "https": 8000, "grpc": 8001, "grpcs": 8001}
"""What a server may be reached by, and the port that Triton has for it."""

TRITON_ALLOWED = "http://HOST:PORT, https://…, grpc://HOST:PORT or grpcs://…, without user or query"
URL_ALLOWED = "http://HOST:PORT or https://…, without user or query"
HEADER_ALLOWED = "NAME: VALUE, or NAME: @FILE for a value that stands in a file"
METRICS_PORT = 8002


def diagnose(  # noqa: PLR0913, PLR0917 - one parameter an option
    context: typer.Context,
    triton: Annotated[
        list[str] | None,
        typer.Option(
            help="A Triton: http(s)://HOST:8000 or grpc(s)://HOST:8001. Several: once for each replica."
        ),
    ] = None,
    p99: Annotated[str, typer.Option(help="The p99 that clients were promised, such as 50ms.")] = "",
    target: Annotated[
        Path | None,
        typer.Option(
            help="A target file instead: its servers, gateway or metrics server, ceiling and price."
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="The model. Default: the one that computed most.")] = "",
    gateway: Annotated[
        str, typer.Option(help="Admin address of the Envoy in front: what clients really see.")
    ] = "",
    gateway_cluster: Annotated[
        list[str] | None,
        typer.Option(help="Envoy's cluster for the servers; several: once each. Default: all with traffic."),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            help="Metrics page of each --triton, in order. Default: port 8002 beside 8000, or two ports on."
        ),
    ] = None,
    prometheus: Annotated[
        str,
        typer.Option(
            help="A Prometheus that has scraped the gateway and the servers, in place of --gateway."
        ),
    ] = "",
    preset: Annotated[
        str, typer.Option(help=f"The gateway that Prometheus scrapes: {', '.join(PRESETS)}.")
    ] = USUAL_PRESET,
    label: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE that all series in Prometheus have. Several: once each."),
    ] = None,
    gateway_label: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE of the servers at the gateway; {name} is each --gateway-cluster."),
    ] = None,
    server_label: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE of a server's own series; {host}, {port}, {address} of its metrics."),
    ] = None,
    device: Annotated[
        str, typer.Option(help="Who tells the device, with --prometheus: triton, dcgm, cpu or none.")
    ] = TRITON,
    prometheus_token: Annotated[
        Path | None, typer.Option(help="File with the bearer token for Prometheus.")
    ] = None,
    prometheus_tenant: Annotated[str, typer.Option(help="Sent to Prometheus as X-Scope-OrgID.")] = "",
    length: Annotated[str, typer.Option("--for", help="How long to look: 2s to 1h.")] = duration_text(USUAL),
    gpu_cost: Annotated[
        float | None,
        typer.Option(help="What one replica costs an hour, to tell what a million inferences cost."),
    ] = None,
    currency: Annotated[str, typer.Option(help="Of --gpu-cost.")] = "USD",
    objective: Annotated[
        Objective, typer.Option(help="What makes a configuration the best.")
    ] = Objective.CAPACITY,
    header: Annotated[
        list[str] | None,
        typer.Option(help="Sent with every question: 'NAME: VALUE', or 'NAME: @FILE'. Several: once each."),
    ] = None,
    ca: Annotated[
        str, typer.Option(help="PEM file of the authorities that vouch for TLS certificates.")
    ] = "",
    html: Annotated[
        Path | None, typer.Option(help="Write the diagnosis as a page, with plots, here.")
    ] = None,
    json: Json = False,
) -> None:
    """Say what is wrong with a Triton, and what tuning would be worth: read-only, from metrics alone.

    Looks for a while, sends no inference, loads nothing. Says where a request's time goes, which
    problem it is and how sure that is, what the best configuration would be worth, and whether
    a study could run. Ends with exit code 3 when no request came.
    """
    invocation = of(context, json=json)
    clock, length_asked = SystemClock(), duration("--for", length, LENGTH_ALLOWED)
    if target is not None:
        if triton:
            raise InvalidInput("--triton", triton, "nothing beside --target, which names its servers")
        observer, asked = _of_target(load_target_file(target), invocation, clock, length_asked, p99)
    else:
        if prometheus and gateway:
            raise InvalidInput("--prometheus", prometheus, "one of --gateway and --prometheus")
        counted_by, secrets = instrumentation(
            PrometheusAsked(
                url=prometheus,
                preset=preset,
                labels=tuple(label or ()),
                gateway_labels=tuple(gateway_label or ()),
                server_labels=tuple(server_label or ()),
                device=device,
                token=prometheus_token,
                tenant=prometheus_tenant,
                authorities=ca,
            )
        )
        deployment = Deployment(
            servers=_servers(triton or [], metrics or []),
            model=model,
            gateway_url=_url("--gateway", gateway, URL_ALLOWED) if gateway else "",
            clusters=tuple(gateway_cluster or ()),
            headers=dict(_header(one) for one in header or ()),
            authorities=ca,
            counted_by=counted_by,
        )
        wish = Wish(objective, _cost(gpu_cost), currency)
        asked = Asked(duration("--p99", p99).total_seconds(), length_asked, wish)
        observer = observer_of(deployment, clock, secrets)
    if html is not None:
        check_place(html, "--html")
    say(f"looking for {asked.length.total_seconds():g} s; nothing is sent but questions")
    found = diagnosed(observer, clock, _wait, asked)
    if html is not None:
        say(f"page: {write_page(render(found), html, '--html')}")
    if json:
        invocation.answer(diagnosis_object(found))
    else:
        print_diagnosis(found)
    if not found.measured:
        raise typer.Exit(Exit.INCONCLUSIVE)


def _of_target(
    asked: TargetFile, invocation: Invocation, clock: Clock, length: timedelta, p99: str
) -> tuple[Observer, Asked]:
    """What a target file says is to be looked at, and how. Raises InvalidInput, Refused, NotFound, Unavailable."""
    target = asked.target()
    ceiling = duration("--p99", p99).total_seconds() if p99 else asked.slo.p99_ms / 1e3
    wish = Wish(target.objective, target.replica_cost_per_hour, target.currency, target.limits)
    settings = invocation.settings()
    observer = target_observer(target, clock, secrets_of(settings), access_of(settings))
    return observer, Asked(ceiling, length, wish)


def _wait(pause: timedelta) -> None:
    time.sleep(pause.total_seconds())


def _cost(amount: float | None) -> float | None:
    if amount is not None and not 0.0 < amount <= 10_000.0:
        raise InvalidInput("--gpu-cost", amount, "an amount an hour above 0, up to 10000")
    return amount


def _servers(urls: Sequence[str], metrics: Sequence[str]) -> tuple[ServerPlace, ...]:
    """The servers with their metrics pages. Raises InvalidInput."""
    if not urls:
        raise InvalidInput("--triton", None, f"{TRITON_ALLOWED}; or a target file with --target")
    if metrics and len(metrics) != len(urls):
        raise InvalidInput("--metrics", list(metrics), f"one for each --triton, {len(urls)} in all")
    places = []
    for number, url in enumerate(urls):
        usable = _url("--triton", url, TRITON_ALLOWED, tuple(SCHEMES))
        parts = urlsplit(usable)
        told = _url("--metrics", metrics[number], URL_ALLOWED) if metrics else ""
        places.append(ServerPlace(parts.netloc, _with_port(parts), _page(told) or _usual_metrics(parts)))
    names = [place.name for place in places]
    if len(set(names)) != len(names):
        raise InvalidInput("--triton", list(urls), "each server once")
    return tuple(places)


def _with_port(parts: SplitResult) -> str:
    """The address, with Triton's own port for gRPC where none is given."""
    if parts.port is None and parts.scheme.startswith("grpc"):
        return f"{parts.scheme}://{parts.hostname}:{SCHEMES[parts.scheme]}"
    return parts.geturl().rstrip("/")


def _usual_metrics(parts: SplitResult) -> str:
    """Where Triton serves metrics beside the port it is reached at: 8000, 8001 and 8002 belong together."""
    usual = SCHEMES[parts.scheme]
    port = METRICS_PORT if parts.port is None else parts.port + METRICS_PORT - usual
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    scheme = "https" if parts.scheme in {"https", "grpcs"} else "http"
    return f"{scheme}://{host}:{port}/metrics"


def _page(url: str) -> str:
    return url if not url or urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/metrics"


def _url(option: str, text: str, allowed: str, schemes: tuple[str, ...] = ("http", "https")) -> str:
    """A usable address. Raises InvalidInput."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in schemes and parts.hostname and parts.username is None and parts.port != 0
    except ValueError as error:
        raise InvalidInput(option, text, allowed) from error
    if not usable or parts.query or parts.fragment or text.split() != [text]:
        raise InvalidInput(option, text, allowed)
    return text


def _header(text: str) -> tuple[str, str]:
    """A header's name and value; the value may stand in a file, out of process lists. Raises InvalidInput."""
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not name.isascii() or not name or " " in name or not value:
        raise InvalidInput("--header", f"{name}: …", HEADER_ALLOWED)
    if value.startswith("@"):
        try:
            value = Path(value[1:]).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput("--header", f"{name}: {value}", HEADER_ALLOWED) from error
    if not (value.isascii() and value.isprintable()):
        raise InvalidInput("--header", f"{name}: …", f"{HEADER_ALLOWED}; one line of ASCII")
    return name, value
