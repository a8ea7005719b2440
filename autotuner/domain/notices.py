"""What people are told without asking: each is an event of a study or of a night, decided from the records alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from autotuner.domain.configuration import ModelConfig, configured_fingerprint, with_configuration
from autotuner.domain.pbtxt import config_pbtxt, patch
from autotuner.domain.rollout import winning_configuration
from autotuner.domain.study import Outcome, Phase, Study


class NoticeKind(StrEnum):
    """What happened."""

    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"
    HARM_BUDGET_SPENT = "harm_budget_spent"
    NIGHT_MISSED = "night_missed"
    NIGHTS_INCONCLUSIVE = "nights_inconclusive"
    PROPOSED = "proposed"


@dataclass(frozen=True)
class Notice:
    """One thing to tell. subject: the study's id, or the night as `target/name`. text: a sentence for people."""

    kind: NoticeKind
    target: str
    subject: str
    at: datetime
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)


def notices_of(before: Study, after: Study, at: datetime) -> tuple[Notice, ...]:
    """Return what the step from `before` to `after` is worth telling people."""
    found = []
    name = after.plan.target.name

    def tell(kind: NoticeKind, text: str, **details: Any) -> None:
        found.append(Notice(kind, name, after.id, at, f"{name}: {text}", details))

    if after.phase is Phase.RESTORATION and before.phase is not Phase.RESTORATION:
        budget = after.plan.slo.harm_budget_requests
        if after.harm_requests >= budget:
            tell(NoticeKind.HARM_BUDGET_SPENT, after.reason, harm_requests=after.harm_requests, budget=budget)
        if after.promoted and after.intended is not Outcome.PROMOTED:
            tell(NoticeKind.ROLLED_BACK, after.reason, replicas=list(after.promoted))
        if after.intended is Outcome.ROLLED_BACK:
            tell(NoticeKind.ROLLED_BACK, after.reason, replicas=list(after.plan.target.stable_names))
    if after.outcome is Outcome.PROMOTED and before.outcome is None:
        tell(NoticeKind.PROMOTED, after.reason, winner=after.winner, replicas=list(after.promoted))
    if after.proposed_to is not None and before.proposed_to is None:
        tell(NoticeKind.PROPOSED, after.reason, **proposal_of(after))
    return tuple(found)


def proposal_of(study: Study) -> dict[str, Any]:
    """Return what whoever owns production's configuration needs to open a change: where it is, and what it is to be.

    config_pbtxt: the whole new text; patch: the difference from what production serves, both as this project writes it.
    """
    winner, incumbent, workload = winning_configuration(study), study.incumbent, study.plan.target.workload
    assert winner is not None
    assert incumbent is not None
    text = incumbent.configs[study.plan.target.stable_names[0]]
    served: ModelConfig = json.loads(text)
    place = workload and {
        "namespace": workload.namespace,
        "name": workload.config_map,
        "key": workload.config_key,
    }
    return {
        "owner": study.proposed_to,
        "config_map": place,
        "model": study.plan.target.model,
        "configuration": winner.describe(),
        "fingerprint": configured_fingerprint(text, winner),
        "config_pbtxt": config_pbtxt(with_configuration(served, winner)),
        "patch": patch(served, winner, workload.config_key if workload else "config.pbtxt"),
    }


def missed(target: str, night: str, why: str, at: datetime) -> Notice:
    """Return the notice of a night that did not start."""
    return Notice(
        NoticeKind.NIGHT_MISSED,
        target,
        f"{target}/{night}",
        at,
        f"{target}: the night {night} was missed: {why}",
    )


def inconclusive(target: str, night: str, nights: int, at: datetime) -> Notice:
    """Return the notice of a night that was inconclusive like those before it."""
    text = f"{target}: {nights} nights in a row ended without a conclusion, the last one {night}"
    return Notice(NoticeKind.NIGHTS_INCONCLUSIVE, target, f"{target}/{night}", at, text, {"nights": nights})


def inconclusive_in_a_row(outcomes: tuple[str | None, ...]) -> int:
    """Return how many of the newest nights were inconclusive. outcomes: newest first; None for one without a study.

    A missed night breaks no row and is none of it: it says nothing about the target.
    """
    count = 0
    for outcome in outcomes:
        if outcome is None:
            continue
        if outcome != Outcome.INCONCLUSIVE:
            break
        count += 1
    return count
