"""The chart's service account in a namespace of the test cluster, with its own token and no other credential."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotuner.adapters.kubernetes import Cluster
from autotuner.adapters.kubernetes.kinds import kind_of
from autotuner.domain.permissions import Need
from autotuner.domain.workload import RouteKind
from tests.cluster.team import NAMESPACE
from tests.kubernetes.api import Api
from tests.kubernetes.chart import rendered
from tests.kubernetes.plane import ControlPlane
from tests.kubernetes.town import until

Rules = list[dict[str, Any]]
RBAC = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
EVERY_ROUTE = "--set=targets.routes={" + ",".join(RouteKind) + "}"


def of_kind(manifests: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The manifests of one kind."""
    return [each for each in manifests if each["kind"] == kind]


@dataclass
class Account:
    """A service account. kubeconfig: with its token; rules: of its role as the chart has it."""

    api: Api
    kubeconfig: Path
    rules: Rules

    def cluster(self) -> Cluster:
        """The product's client under this account."""
        return Cluster(str(self.kubeconfig))

    def without(self, need: Need) -> None:
        """Let the account do everything but this."""
        kind = kind_of(need.kind)
        lost = (kind.group, kind.plural, need.verb)
        kept = [rule for rule in singles(self.rules) if rule != lost]
        assert len(kept) == len(singles(self.rules)) - 1, need
        self._allow([{"apiGroups": [g], "resources": [r], "verbs": [v]} for g, r, v in kept])
        until(lambda: self.cluster().lacks(need.verb, need.kind, NAMESPACE) != "", f"{need} is gone", 10)

    def with_all(self, need: Need) -> None:
        """Let the account do everything again. need: what it could not do."""
        self._allow(self.rules)
        until(lambda: self.cluster().lacks(need.verb, need.kind, NAMESPACE) == "", f"{need} is back", 10)

    def _allow(self, rules: Rules) -> None:
        self.api.merge(f"{RBAC}/roles/autotuner", {"rules": copy.deepcopy(rules)})


def singles(rules: Rules) -> list[tuple[str, str, str]]:
    """Every permission of a role: group, resource and verb."""
    return [
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def installed(control_plane: ControlPlane, folder: Path, *values: str) -> Account:
    """Make the chart's account and role in the namespace, and a token for it."""
    manifests = rendered(*values, namespace=NAMESPACE)
    api = control_plane.api
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    api.create(accounts, of_kind(manifests, "ServiceAccount")[0])
    role = of_kind(manifests, "Role")[0]
    api.create(f"{RBAC}/roles", role)
    api.create(f"{RBAC}/rolebindings", of_kind(manifests, "RoleBinding")[0])
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    token = api.create(f"{accounts}/autotuner/token", asked)["status"]["token"]
    path = folder / "account.kubeconfig"
    control_plane.write_kubeconfig(path, {"token": token}, NAMESPACE)
    account = Account(api, path, role["rules"])
    until(lambda: account.cluster().lacks("list", "Pod", NAMESPACE) == "", "the account may work", 10)
    return account
