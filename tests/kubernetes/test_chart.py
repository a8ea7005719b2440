"""The chart: valid for every supported version, taken by a real API server; its account may do just what it must."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import kubernetes_validate
import pytest
import yaml

from autotuner.adapters.clock import ManualClock, SystemClock
from autotuner.adapters.kubernetes import (
    Cluster,
    KubernetesCanary,
    KubernetesRoute,
    Production,
    Whereabouts,
    reap,
    survey,
)
from autotuner.domain.target import Target
from autotuner.errors import AutotunerError
from autotuner.target_file import parse_target_file
from scripts.kustomize_base import base
from tests.documents import ROOT
from tests.kubernetes.chart import CHART, helm, rendered
from tests.kubernetes.plane import ControlPlane
from tests.kubernetes.town import NAMESPACE, Town

VALUE_SETS = {
    "defaults": (),
    "everything": (
        "--set=api.autoscaling.enabled=true,serviceMonitor.enabled=true,serviceMonitor.labels.release=prometheus",
        "--set=targets.namespaces={prod,staging},targets.routes={HTTPRoute,GRPCRoute,VirtualService,Ingress}",
        "--set=image.digest=sha256:" + "ab" * 32,
        "--set=settings.CANARIES_PER_SITE=5,imagePullSecrets[0].name=registry",
        "--set=secretSettings.WEBHOOK_SECRET.secret=hooks,secretSettings.WEBHOOK_SECRET.key=secret",
        "--set=networkPolicy.ingressFrom[0].namespaceSelector.matchLabels.team=platform",
    ),
    "least": (
        "--set=disruptionBudget.enabled=false,networkPolicy.enabled=false,uninstall.cancelStudies=false",
        "--set=api.replicas=1,worker.replicas=1,scheduler.replicas=1",
    ),
}
EVERY_SET = pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS.keys())
VERSIONS = ("1.34", "1.35", "1.36", "1.37")


def of_kind(manifests: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in manifests if each["kind"] == kind]


@EVERY_SET
def test_helm_lints_the_chart(values: tuple[str, ...]) -> None:
    done = subprocess.run(
        [str(helm()), "lint", "--strict", str(CHART), *values], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
@EVERY_SET
def test_every_manifest_fits_the_schema_of_every_supported_version(
    values: tuple[str, ...], version: str
) -> None:
    for manifest in rendered(*values, version=f"{version}.0"):
        if manifest["kind"] != "ServiceMonitor":
            kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("api.replicas=0", "replicas"),
        ("image.digest=latest", "digest"),
        ("targets.routes={Gateway}", "routes"),
        ("databse.secret=x", "databse"),
    ],
)
def test_values_that_cannot_be_used_are_refused_by_name(wrong: str, says: str) -> None:
    command = [str(helm()), "template", "autotuner", str(CHART), f"--set={wrong}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert says in done.stderr


@EVERY_SET
def test_every_pod_is_restricted_and_only_who_needs_it_has_a_token(values: tuple[str, ...]) -> None:
    for pod in _pods(rendered(*values)):
        container = pod["containers"][0]
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        needs = container["name"] in ("worker", "reaper", "leave")
        assert pod["automountServiceAccountToken"] == needs


def _pods(manifests: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for each in manifests:
        if each["kind"] in ("Deployment", "Job"):
            yield each["spec"]["template"]["spec"]
        elif each["kind"] == "CronJob":
            yield each["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def test_what_kustomize_has_is_what_the_chart_has() -> None:
    kept = (ROOT / "deploy" / "kustomize" / "base" / "autotuner.yaml").read_text("utf-8")
    assert kept == base(), "make kustomize renders it anew"


@pytest.mark.skipif(shutil.which("kubectl") is None and not os.environ.get("CI"), reason="no kubectl here")
def test_the_overlay_can_be_built() -> None:
    folder = ROOT / "deploy" / "kustomize" / "overlays" / "example"
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = [each for each in yaml.safe_load_all(done.stdout) if each]
    images = {pod["containers"][0]["image"] for pod in _pods(built)}
    assert len(images) == 1
    assert images.pop().startswith("registry.internal/autotuner@sha256:")
    assert {each["metadata"]["namespace"] for each in built} == {"tuning", "prod"}


def test_a_real_api_server_takes_every_manifest_into_a_restricted_namespace(
    control_plane: ControlPlane,
) -> None:
    api = control_plane.api
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.create("/api/v1/namespaces", {"metadata": {"name": "autotuner", "labels": enforced}})
    try:
        for manifest in rendered("--set=api.autoscaling.enabled=true"):
            group = manifest["apiVersion"]
            root = "/api/v1" if group == "v1" else f"/apis/{group}"
            plural = PLURALS.get(manifest["kind"], f"{manifest['kind'].lower()}s")
            path = f"{root}/namespaces/{manifest['metadata']['namespace']}/{plural}"
            api.ask("POST", f"{path}?dryRun=All&fieldValidation=Strict", manifest)
    finally:
        api.delete("/api/v1/namespaces/autotuner")


PLURALS = {"NetworkPolicy": "networkpolicies"}


# -- what the account of the chart may do


@dataclass
class Account:
    """The chart's service account in a town, as the product uses it. rules: of its role."""

    town: Town
    cluster: Cluster
    target: Target
    rules: list[dict[str, Any]]

    def allow(self, rules: list[dict[str, Any]]) -> None:
        """Give the account these rules, and no other."""
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/autotuner"
        self.town.api.merge(path, {"rules": rules})

    def things(self) -> dict[str, Callable[[], object]]:
        """Everything the product does on a cluster, by name, in an order in which each can be done."""
        clock = SystemClock()
        route = KubernetesRoute(self.cluster, self.target)
        canary = KubernetesCanary(self.cluster, self.target, route, clock)
        production = Production(self.cluster, self.target, clock, str)
        later = ManualClock(clock.now() + timedelta(days=3))
        served, winner = {"name": "quick"}, {"name": "quick", "max_batch_size": 4}
        return {
            "preflight": lambda: survey(self.cluster, self.target),
            "put up the canary": canary.put_up,
            "look for pods": lambda: Whereabouts(self.cluster, self.target, clock).now(),
            "look for a rollout": canary.objection,
            "set weights": lambda: route.set_weights({"stable": 500, "canary": 500}),
            "keep the configuration": lambda: production.keep(served),
            "promote": lambda: production.write(winner),
            "give the configuration back": lambda: production.write(served),
            "take the canary down": canary.take_down,
            "reap": lambda: reap(self.cluster, later, NAMESPACE, lambda name: canary),
        }

    def refused(self) -> tuple[str, str] | None:
        """Do everything in order up to the first thing that is refused; return its name and the sentence."""
        for name, thing in self.things().items():
            try:
                thing()
            except AutotunerError as error:
                return name, str(error)
        return None


@pytest.fixture(scope="module")
def account(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    folder = tmp_path_factory.mktemp("account")
    with Town(control_plane.api, folder).standing() as town:
        manifests = rendered(namespace=NAMESPACE)
        api, rbac = town.api, f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
        api.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", of_kind(manifests, "ServiceAccount")[0])
        role = of_kind(manifests, "Role")[0]
        api.create(f"{rbac}/roles", role)
        api.create(f"{rbac}/rolebindings", of_kind(manifests, "RoleBinding")[0])
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": []},
        }
        token = api.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/autotuner/token", request)
        path = folder / "account.kubeconfig"
        control_plane.write_kubeconfig(path, {"token": token["status"]["token"]}, NAMESPACE)
        yield Account(town, Cluster(str(path)), parse_target_file(town.target()).target(), role["rules"])


def test_the_account_of_the_chart_can_do_everything(account: Account) -> None:
    before = account.town.snapshot()
    account.allow(account.rules)
    assert account.refused() is None
    assert account.town.snapshot() == before


def permissions() -> list[tuple[str, str]]:
    """Every permission of the default role."""
    found = []
    for rule in NEEDED:
        found += [(resource, verb) for resource in rule[0] for verb in rule[1]]
    return found


NEEDED = (
    (("pods", "events"), ("list",)),
    (("services", "configmaps", "deployments"), ("get", "create", "patch", "delete", "list")),
    (("horizontalpodautoscalers", "poddisruptionbudgets"), ("list",)),
    (("httproutes",), ("get", "patch")),
    (("ingresses",), ("get", "list")),
)


def test_the_list_of_permissions_is_the_charts(account: Account) -> None:
    """A workload that is a Deployment does not need what one that is a StatefulSet does."""
    given = {(r, v) for rule in account.rules for r in rule["resources"] for v in rule["verbs"]}
    assert given - {("statefulsets", "get")} == set(permissions())


@pytest.mark.parametrize(("resource", "verb"), permissions(), ids=str)
def test_without_one_permission_one_thing_fails_and_names_it(
    account: Account, resource: str, verb: str
) -> None:
    rules = copy.deepcopy(account.rules)
    kept = [
        {**rule, "resources": [name], "verbs": [v for v in rule["verbs"] if (name, v) != (resource, verb)]}
        for rule in rules
        for name in rule["resources"]
    ]
    account.allow([rule for rule in kept if rule["verbs"]])
    try:
        refused = account.refused()
    finally:
        account.allow(account.rules)
        for name in ("give the configuration back", "take the canary down"):
            account.things()[name]()
    assert refused is not None
    assert re.search(
        rf"not permitted: {verb} on {resource}[.a-z0-9]* in namespace {NAMESPACE}", refused[1]
    ), refused
