"""Which scope each page needs: the second part of the table in `api/scopes.py`, kept to by the same guard."""

from __future__ import annotations

from api.scopes import OPEN, Rule
from autotuner.domain.access import Scope

PAGES: tuple[Rule, ...] = (
    Rule("GET", "/", OPEN),
    Rule("GET", "/ui", OPEN),
    Rule("GET", "/ui/static/{asset}", OPEN),
    Rule("GET", "/ui/sign-in", OPEN),
    Rule("POST", "/ui/sign-in", OPEN),
    Rule("POST", "/ui/sign-out", OPEN),
    Rule("GET", "/ui/targets", Scope.VIEWER),
    Rule("GET", "/ui/targets/{name}", Scope.VIEWER),
    Rule("POST", "/ui/targets/{name}/check", Scope.OPERATOR),
    Rule("GET", "/ui/targets/{name}/diagnosis", Scope.VIEWER),
    Rule("GET", "/ui/targets/{name}/slo-budget", Scope.VIEWER),
    Rule("POST", "/ui/targets/{name}/slo-budget", Scope.OPERATOR),
    Rule("GET", "/ui/targets/{name}/start", Scope.OPERATOR),
    Rule("POST", "/ui/targets/{name}/start", Scope.OPERATOR),
    Rule("GET", "/ui/targets/{name}/schedule", Scope.VIEWER),
    Rule("POST", "/ui/targets/{name}/schedule", Scope.OPERATOR),
    Rule("POST", "/ui/targets/{name}/schedule/remove", Scope.OPERATOR),
    Rule("GET", "/ui/studies", Scope.VIEWER),
    Rule("GET", "/ui/studies/{study_id}", Scope.VIEWER),
    Rule("GET", "/ui/studies/{study_id}/live", Scope.VIEWER),
    Rule("GET", "/ui/studies/{study_id}/events", Scope.VIEWER),
    Rule("GET", "/ui/studies/{study_id}/ask/{wish}", Scope.OPERATOR),
    Rule("POST", "/ui/studies/{study_id}/ask/{wish}", Scope.OPERATOR),
    Rule("GET", "/ui/studies/{study_id}/decide/{wish}", Scope.APPROVER),
    Rule("POST", "/ui/studies/{study_id}/decide/{wish}", Scope.APPROVER),
    Rule("GET", "/ui/studies/{study_id}/trials/{number}", Scope.VIEWER),
    Rule("GET", "/ui/studies/{study_id}/certificate", Scope.VIEWER),
    Rule("GET", "/ui/trials", Scope.VIEWER),
    Rule("GET", "/ui/promotions", Scope.VIEWER),
    Rule("GET", "/ui/ledger", Scope.VIEWER),
    Rule("GET", "/ui/schedules", Scope.VIEWER),
    Rule("POST", "/ui/freezes", Scope.OPERATOR),
    Rule("POST", "/ui/freezes/{number}/end", Scope.OPERATOR),
    Rule("GET", "/ui/line", Scope.OPERATOR),
    Rule("POST", "/ui/line", Scope.OPERATOR),
    Rule("GET", "/ui/audit", Scope.VIEWER),
    Rule("GET", "/ui/audit/verification", Scope.VIEWER),
)
