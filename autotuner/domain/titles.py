"""What phases and kinds of trials are called where people read them: the same words on every screen and page."""

from __future__ import annotations

from autotuner.domain.spans import Part
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

WAY_TITLES = {
    Part.GATEWAY: "gateway",
    Part.NETWORK: "network",
    Part.PASSAGE: "gateway or network",
    Part.BEHIND: "behind the gateway",
    Part.TRITON: "Triton around it",
    Part.QUEUE: "queue",
    Part.INPUT: "input copy",
    Part.INFER: "inference",
    Part.OUTPUT: "output copy",
}
"""Parts of a request's way, by its spans."""
