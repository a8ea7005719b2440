"""What phases and kinds of trials are called where people read them: the same words on every screen and page."""

from __future__ import annotations

from autotuner.domain.study import Phase, TrialKind

PHASE_TITLES = {
    Phase.CREATED: "reading production as it is",
    Phase.BASELINE: "measuring the incumbent",
    Phase.SEARCH: "trying candidates on the canary",
    Phase.CONFIRMATION: "confirming the winner on fresh data",
    Phase.APPROVAL: "waiting for approval",
    Phase.PROMOTION: "promoting to the stable replicas, one at a time",
    Phase.WATCH: "watching production",
    Phase.RESTORATION: "putting everything right",
    Phase.ENDED: "ended",
}

KIND_TITLES = {
    TrialKind.PRODUCTION: "production as found",
    TrialKind.BASELINE: "incumbent on the canary (A/A)",
    TrialKind.CANDIDATE: "candidate",
    TrialKind.CONFIRMATION: "winner, fresh data",
    TrialKind.CONTROL: "incumbent, fresh data",
    TrialKind.STAGE: "promotion stage",
    TrialKind.WATCH: "watch",
}
