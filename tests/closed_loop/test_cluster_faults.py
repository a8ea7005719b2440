"""What goes wrong on a cluster, whenever: production ends as it was found or as it was proved, and nothing is left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotuner.domain.study import Outcome, Phase, Study, TrialKind, TrialState
from tests.closed_loop.endings import at, reached
from tests.cluster.loop import ClusterLoop, a_cluster_loop, check_ending, forked
from tests.cluster.trouble import FAULTS, Fault
from tests.documents import ROOT

MOMENTS: dict[str, Callable[[Study], bool]] = {
    "candidate": at(TrialKind.CANDIDATE, level=1),
    "stage": at(TrialKind.STAGE),
    "between stages": lambda study: (
        len(study.promoted) == 1 and at(TrialKind.STAGE, TrialState.PROPOSED)(study)
    ),
    "watch": at(TrialKind.WATCH),
    "restoration": reached(Phase.RESTORATION),
}
MOST_TICKS = 600


@pytest.fixture(scope="module")
def moments() -> dict[str, ClusterLoop]:
    """One undisturbed study as it is at each of the moments, to be forked."""
    loop, found = a_cluster_loop(), {"start": a_cluster_loop()}
    for name, there in MOMENTS.items():
        loop.run(until=there)
        found[name] = forked(loop)
    return found


def struck(moments: dict[str, ClusterLoop], moment: str, fault: Fault) -> tuple[ClusterLoop, Study]:
    loop = forked(moments[moment])
    loop.said.clear()
    fault.strike(loop)
    loop.run(most_ticks=MOST_TICKS)
    return loop, check_ending(loop, fault.theirs)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_in_a_sentence_and_ends_restored(moments: dict[str, ClusterLoop], name: str) -> None:
    fault = FAULTS[name]
    loop, study = struck(moments, fault.moment, fault)
    assert any(fault.says in said for said in [*loop.said, study.reason]), loop.said
    assert study.outcome in fault.ends, study.reason


@pytest.mark.parametrize("moment", ["stage", "between stages", "restoration"])
@pytest.mark.parametrize("name", FAULTS)
def test_whenever_it_strikes_nothing_is_left_and_nothing_unproven(
    moments: dict[str, ClusterLoop], name: str, moment: str
) -> None:
    _, study = struck(moments, moment, FAULTS[name])
    assert study.reason.count("could not be restored") <= 3
    assert study.outcome in (Outcome.PROMOTED, Outcome.ABORTED, Outcome.INCONCLUSIVE, Outcome.KEPT)


def test_the_page_on_kubernetes_lists_these_faults_and_their_sentences() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
    section = page.partition("## What goes wrong")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    told = {name: fault.says for name, fault in FAULTS.items()}
    assert {name: says for name, _, says in rows} == told
