"""Which scope each route needs: one table, and nothing is served that is not in it.

The guard lets nothing through by default. A route that is missing here stops the service from starting; an address that
is missing is answered with 404 before anything looks at it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.routing import compile_path

from api.problems import NotAllowed
from autotuner.domain.access import Scope
from autotuner.errors import NotFound

OPEN = None
"""For routes that anybody may use: they tell nothing but whether the service works, and how to use it."""


@dataclass(frozen=True)
class Rule:
    """One route: its method, its path as FastAPI spells it, and the scope it needs (None: it is open to all)."""

    method: str
    path: str
    scope: Scope | None


RULES: tuple[Rule, ...] = (
    Rule("GET", "/healthz", OPEN),
    Rule("GET", "/readyz", OPEN),
    Rule("GET", "/v1/openapi.json", OPEN),
    Rule("GET", "/metrics", Scope.VIEWER),
    Rule("GET", "/v1/me", Scope.VIEWER),
    Rule("GET", "/v1/targets", Scope.VIEWER),
    Rule("POST", "/v1/targets", Scope.OPERATOR),
    Rule("GET", "/v1/targets/{name}", Scope.VIEWER),
    Rule("PUT", "/v1/targets/{name}", Scope.OPERATOR),
    Rule("DELETE", "/v1/targets/{name}", Scope.ADMIN),
    Rule("POST", "/v1/targets/{name}/check", Scope.OPERATOR),
    Rule("GET", "/v1/targets/{name}/diagnosis", Scope.VIEWER),
    Rule("POST", "/v1/targets/{name}/diagnosis", Scope.OPERATOR),
    Rule("GET", "/v1/targets/{name}/slo-budget", Scope.VIEWER),
    Rule("PUT", "/v1/targets/{name}/slo-budget", Scope.OPERATOR),
    Rule("GET", "/v1/targets/{name}/slo-budget/versions", Scope.VIEWER),
    Rule("GET", "/v1/studies", Scope.VIEWER),
    Rule("POST", "/v1/studies", Scope.OPERATOR),
    Rule("GET", "/v1/studies/{study_id}", Scope.VIEWER),
    Rule("GET", "/v1/studies/{study_id}/journal", Scope.VIEWER),
    Rule("GET", "/v1/studies/{study_id}/events", Scope.VIEWER),
    Rule("POST", "/v1/studies/{study_id}/cancel", Scope.OPERATOR),
    Rule("POST", "/v1/studies/{study_id}/pause", Scope.OPERATOR),
    Rule("POST", "/v1/studies/{study_id}/resume", Scope.OPERATOR),
    Rule("GET", "/v1/studies/{study_id}/trials", Scope.VIEWER),
    Rule("GET", "/v1/studies/{study_id}/trials/{number}", Scope.VIEWER),
    Rule("GET", "/v1/trials", Scope.VIEWER),
    Rule("GET", "/v1/trials.csv", Scope.VIEWER),
    Rule("GET", "/v1/trials.jsonl", Scope.VIEWER),
    Rule("GET", "/v1/promotions", Scope.VIEWER),
    Rule("POST", "/v1/promotions/{study_id}/rollback", Scope.OPERATOR),
    Rule("GET", "/v1/promotions/{study_id}/certificate", Scope.VIEWER),
    Rule("GET", "/v1/ledger", Scope.VIEWER),
    Rule("GET", "/v1/studies/{study_id}/promotion", Scope.VIEWER),
    Rule("POST", "/v1/studies/{study_id}/promotion/approve", Scope.APPROVER),
    Rule("POST", "/v1/studies/{study_id}/promotion/reject", Scope.APPROVER),
    Rule("GET", "/v1/schedules", Scope.VIEWER),
    Rule("GET", "/v1/targets/{name}/schedule", Scope.VIEWER),
    Rule("PUT", "/v1/targets/{name}/schedule", Scope.OPERATOR),
    Rule("DELETE", "/v1/targets/{name}/schedule", Scope.OPERATOR),
    Rule("GET", "/v1/standing", Scope.VIEWER),
    Rule("POST", "/v1/freezes", Scope.OPERATOR),
    Rule("DELETE", "/v1/freezes/{number}", Scope.OPERATOR),
    Rule("POST", "/v1/line/stop", Scope.OPERATOR),
    Rule("POST", "/v1/line/release", Scope.OPERATOR),
    Rule("GET", "/v1/nights", Scope.VIEWER),
    Rule("POST", "/v1/traces", Scope.TRACER),
    Rule("GET", "/v1/audit", Scope.VIEWER),
    Rule("GET", "/v1/audit/verification", Scope.VIEWER),
)


class RuleBook:
    """The rules, found by method and path."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = tuple(rules)
        self._plain: dict[str, dict[str, Rule]] = {}
        self._patterns: list[tuple[re.Pattern[str], dict[str, Rule]]] = []
        for path in dict.fromkeys(rule.path for rule in self._rules):
            methods = {rule.method: rule for rule in self._rules if rule.path == path}
            if "{" in path:
                self._patterns.append((compile_path(path)[0], methods))
            else:
                self._plain[path] = methods

    def rule_for(self, method: str, path: str) -> Rule:
        """Return the rule of a request. Raises NotFound, NotAllowed."""
        methods = self._plain.get(path) or self._methods_of(path)
        if method not in methods:
            raise NotAllowed(tuple(sorted(methods)))
        return methods[method]

    def _methods_of(self, path: str) -> dict[str, Rule]:
        for pattern, methods in self._patterns:
            if pattern.match(path):
                return methods
        raise NotFound("address", path)

    def check_complete(self, routes: Iterable[tuple[str, str]]) -> None:
        """Raise LookupError unless the rules are for exactly these routes (method and path)."""
        served, ruled = set(routes), {(rule.method, rule.path) for rule in self._rules}
        if served != ruled:
            raise LookupError(f"routes without a rule, or rules without a route: {sorted(served ^ ruled)}")
