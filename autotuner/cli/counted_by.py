"""What the options of a Prometheus mean: the same section that a target file has, checked by the same rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotuner.domain.sources import Instrumentation
from autotuner.errors import InvalidInput
from autotuner.instruments.devices import TRITON
from autotuner.instruments.presets import CUSTOM, preset_names
from autotuner.metrics_section import MetricsSection
from autotuner.secret_shelf import SecretShelf
from autotuner.sections import InvalidFields, validated

PRESETS = tuple(name for name in preset_names() if name != CUSTOM)
"""Gateways that need no more than a name; for any other one a target file says what its series mean."""

USUAL_PRESET = "envoy"
LABEL_ALLOWED = "NAME=VALUE"
OPTIONS = {
    "prometheus.url": "--prometheus",
    "prometheus.tenant": "--prometheus-tenant",
    "preset": "--preset",
    "metrics.preset": "--preset",
    "labels": "--label",
    "gateway": "--gateway-label",
    "metrics.gateway": "--gateway-label",
    "server": "--server-label",
    "metrics.server": "--server-label",
    "device": "--device",
}
"""Fields of the section, and what they are called here."""

TOKEN, AUTHORITIES = "token", "authorities"


@dataclass(frozen=True)
class PrometheusAsked:
    """The options as they were given. token: a file; authorities: a file, empty for those the system trusts."""

    url: str = ""
    preset: str = USUAL_PRESET
    labels: tuple[str, ...] = ()
    gateway_labels: tuple[str, ...] = ()
    server_labels: tuple[str, ...] = ()
    device: str = TRITON
    token: Path | None = None
    tenant: str = ""
    authorities: str = ""


def instrumentation(asked: PrometheusAsked) -> tuple[Instrumentation | None, SecretShelf]:
    """Return how counters are read (None without a URL) and the secrets for that. Raises InvalidInput."""
    if not asked.url:
        if replace(asked, authorities="") != PrometheusAsked():
            allowed = "a URL beside the options that say what it has"
            raise InvalidInput("--prometheus", None, allowed)
        return None, SecretShelf()
    if asked.preset not in PRESETS:
        allowed = f"one of: {', '.join(PRESETS)}; any other gateway in a target file, with --target"
        raise InvalidInput("--preset", asked.preset, allowed)
    secrets = {}
    if asked.token is not None:
        secrets[TOKEN] = _text("--prometheus-token", str(asked.token))
    if asked.authorities:
        secrets[AUTHORITIES] = _text("--ca", asked.authorities)
    section = {
        "prometheus": {
            "url": asked.url,
            "tenant": asked.tenant,
            "bearer": TOKEN if TOKEN in secrets else None,
            "ca": AUTHORITIES if AUTHORITIES in secrets else None,
        },
        "preset": asked.preset,
        "labels": _labels("--label", asked.labels),
        "gateway": _labels("--gateway-label", asked.gateway_labels),
        "server": _labels("--server-label", asked.server_labels),
        "gateway_pods": None,
        "device": asked.device,
    }
    try:
        plan = validated(MetricsSection, section, "--prometheus").instrumentation()
    except InvalidFields as error:
        raise _named(error.problems[0]) from error
    except InvalidInput as error:
        raise _named(error) from error
    return plan, SecretShelf(secrets)


def _named(problem: InvalidInput) -> InvalidInput:
    return InvalidInput(OPTIONS.get(problem.field, problem.field), problem.value, problem.allowed)


def _labels(option: str, given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or name in found:
            raise InvalidInput(option, text, f"{LABEL_ALLOWED}, each name once")
        found[name] = value
    return found


def _text(option: str, path: str) -> str:
    try:
        return Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(option, path, "a readable text file") from error
