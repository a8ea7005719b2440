"""ACCEPT, REJECT, INCONCLUSIVE or VOID, with the reason in one sentence.

The rule it guards: nothing is promoted without evidence, nobody is blamed for the weather, and no data is not success.
The hypothesis is about q, the share of requests slower than the ceiling or failed. Counts are cumulative over one
window, so every look is a look at the same e-process; the verdict may be asked for at each of them.

- ACCEPT needs evidence that q is below the allowed share, and no more failures than the error ceiling allows.
- REJECT needs evidence that q is above it, or that failures exceed their ceiling, and that it is the canary's fault.
- VOID: the evidence is there, but the stable replicas suffer in the same way. The environment moved.
- INCONCLUSIVE: the window is exhausted and none of these holds. It never promotes.

A control that moves never voids an ACCEPT: a canary that keeps its ceiling while its neighbours suffer is good all the
more, and one whose neighbours got better kept an absolute ceiling all the same (they must get better: while the canary
takes more of the traffic, they have less). That the traffic was what the step asked for is judged elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import SupportsFloat

from autotuner.errors import InvalidInput
from autotuner.stats.comparison import Share, log_odds_shared
from autotuner.stats.eprocess import log_e_above, log_e_below
from autotuner.stats.interval import anytime_interval


class Verdict(StrEnum):
    """What a window of measurement says about a configuration."""

    ACCEPT = "accept"
    REJECT = "reject"
    INCONCLUSIVE = "inconclusive"
    VOID = "void"


@dataclass(frozen=True)
class Counts:
    """Requests of one replica, or of several together, that ended in one window.

    bad_at_most: slow or failed, slow counted at the bucket edge at or below the ceiling: never too few; ACCEPT uses it.
    bad_at_least: the same at the edge at or above the ceiling: never too many; REJECT uses it.
    failed: ended in an error; part of both. Raises InvalidInput for counts that cannot be.
    """

    total: int
    bad_at_most: int
    bad_at_least: int
    failed: int

    def __post_init__(self) -> None:
        for name in ("total", "bad_at_most", "bad_at_least", "failed"):
            value = getattr(self, name)
            if type(value) is int and value >= 0:  # what nearly every one of a look's dozens of counts is
                continue
            if isinstance(value, bool) or not math.isfinite(value) or value < 0 or value != int(value):
                raise InvalidInput(f"counts.{name}", value, "a whole number of requests, 0 or more")
        if not self.failed <= self.bad_at_least <= self.bad_at_most <= self.total:
            raise InvalidInput("counts", self, "failed ≤ bad_at_least ≤ bad_at_most ≤ total")

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.total + other.total,
            self.bad_at_most + other.bad_at_most,
            self.bad_at_least + other.bad_at_least,
            self.failed + other.failed,
        )

    def excess(self, allowed: float) -> float:
        """Return the harm: slow or failed requests above the allowed share, never below 0."""
        return max(0.0, self.bad_at_most - allowed * self.total)


@dataclass(frozen=True)
class Levels:
    """Chances of a wrong verdict at the very edge (a share of exactly what is allowed), over all looks of a window.

    accept_alpha: of an ACCEPT; reject_alpha: of a REJECT, both kinds of evidence together. Each in (0, 1).
    """

    accept_alpha: float
    reject_alpha: float

    def __post_init__(self) -> None:
        for name, value in (("accept_alpha", self.accept_alpha), ("reject_alpha", self.reject_alpha)):
            if not 0.0 < value < 1.0:
                raise InvalidInput(f"levels.{name}", value, "a probability between 0 and 1, both excluded")


SCREENING = Levels(accept_alpha=0.10, reject_alpha=0.05)
"""Trials: one wrong ACCEPT in ten at the edge costs only a confirmation, and halves the requests a good one needs."""

STRICT = Levels(accept_alpha=0.01, reject_alpha=0.05)
"""What promotion rests on. Rejecting stays as quick as in screening: a bad configuration must go within a dozen slow
requests; one in twenty is rejected wrongly only at exactly the edge, and hardly any good one (q = 0.25 %) ever is."""

SLOW_SHARE_OF_ALPHA = 0.9
"""Of reject_alpha, spent on slow-or-failed; the rest on failures alone (their sum bounds the union)."""

FEWEST_FAILURES = 3.0
"""Effective failures below which failures alone never reject, however small the ceiling."""

ODDS_TO_VOID = 33.0
"""Odds for a shared cause at which nobody is blamed: a bad canary with a healthy control gets there in ≤ 3 %."""

ODDS_TO_BLAME = 50.0
"""Odds against a shared cause at which the canary is blamed: in a shared burst reached in ≤ 2 %."""

PATIENCE_SILENT = 40.0
"""Effective bad requests after which a canary is blamed although the stable replicas have had no request at all."""

PATIENCE_UNDECIDED = 100.0
"""Effective bad requests after which an undecidable comparison ends as VOID: off the canary, nobody blamed."""


@dataclass(frozen=True)
class Judgement:
    """A verdict and all that it rests on, as plain values.

    estimate: share of slow-or-failed requests; interval: 95 % limits of it that hold at every look.
    bad, total, control_bad, control_total: raw counts. dispersion: the factor φ the evidence was divided by.
    log_e_accept, log_e_reject: natural logs of the evidence for "below" and "above" the allowed share.
    """

    verdict: Verdict
    estimate: float
    interval: tuple[float, float]
    total: int
    bad: int
    control_total: int
    control_bad: int
    dispersion: float
    log_e_accept: float
    log_e_reject: float
    reason: str


@dataclass(frozen=True)
class _Case:
    """Everything one look knows."""

    candidate: Counts
    control: Counts | None
    baseline: Counts
    allowed: float
    error_ceiling: float
    levels: Levels
    dispersion: float

    @property
    def log_e_accept(self) -> float:
        """Evidence that the share of slow-or-failed requests is below what is allowed."""
        return self._evidence(log_e_below, self.candidate.bad_at_most, self.allowed)

    @property
    def log_e_reject(self) -> float:
        """Evidence that it is above."""
        return self._evidence(log_e_above, self.candidate.bad_at_least, self.allowed)

    @property
    def log_e_failing(self) -> float:
        """Evidence that the share of failed requests is above the error ceiling."""
        return self._evidence(log_e_above, self.candidate.failed, self.error_ceiling)

    def _evidence(
        self, log_e: Callable[[float, float, float], SupportsFloat], bad: int, boundary: float
    ) -> float:
        return float(log_e(bad / self.dispersion, self.candidate.total / self.dispersion, boundary))


def judge(  # noqa: PLR0913 - three counts and the five terms they are judged on, each named by the caller
    candidate: Counts,
    control: Counts | None,
    control_baseline: Counts,
    *,
    allowed: float = 0.01,
    error_ceiling: float,
    levels: Levels,
    dispersion: float,
    exhausted: bool,
) -> Judgement | None:
    """Return the verdict on the candidate at this look; None means keep looking.

    candidate, control: cumulative counts of the canary and of the stable replicas in one window. control None: there
    is no stable replica to compare with (all of them are under watch); then the candidate answers alone.
    control_baseline: the stable replicas in their own baseline window; zeros if there was none.
    allowed: share of requests that may be slow or failed. error_ceiling: share that may fail; both in (0, 1).
    dispersion: φ ≥ 1 from `stats.overdispersion`. exhausted: no further look will come.
    Raises InvalidInput for terms out of range.
    """
    case = _checked(_Case(candidate, control, control_baseline, allowed, error_ceiling, levels, dispersion))
    decided = _decided(case) if candidate.total else None
    if decided is not None:
        return _judgement(case, *decided)
    return _judgement(case, Verdict.INCONCLUSIVE, _why_inconclusive(case)) if exhausted else None


def _checked(case: _Case) -> _Case:
    for name, value in (("allowed", case.allowed), ("error_ceiling", case.error_ceiling)):
        if not 0.0 < value < 1.0:
            raise InvalidInput(name, value, "a share between 0 and 1, both excluded")
    if not 1.0 <= case.dispersion < math.inf:
        raise InvalidInput("dispersion", case.dispersion, "a factor of 1 or more")
    return case


def _decided(case: _Case) -> tuple[Verdict, str] | None:
    """The verdict and its sentence's second half, or None as long as nothing is decided."""
    slow = case.log_e_reject >= -math.log(case.levels.reject_alpha * SLOW_SHARE_OF_ALPHA)
    if slow:
        return _blame(case, failures=False)
    if _failing(case):
        return _blame(case, failures=True)
    accepted = case.log_e_accept >= -math.log(case.levels.accept_alpha)
    if accepted and case.candidate.failed <= case.error_ceiling * case.candidate.total:
        return Verdict.ACCEPT, f"where {_percent(case.allowed)} is allowed"
    return None


def _failing(case: _Case) -> bool:
    enough = case.candidate.failed / case.dispersion >= FEWEST_FAILURES
    return enough and case.log_e_failing >= -math.log(case.levels.reject_alpha * (1 - SLOW_SHARE_OF_ALPHA))


def _blame(case: _Case, *, failures: bool) -> tuple[Verdict, str] | None:
    """Whose fault the evidence against the canary is; None while that is open."""
    bound = case.error_ceiling if failures else case.allowed
    over = f"where {_percent(bound)} is allowed"
    if failures:
        over = f"and {case.candidate.failed} failed ({_percent(_share(case.candidate.failed, case))}), {over}"
    if case.control is None:
        return Verdict.REJECT, f"{over}; there is no stable replica to compare with"
    candidate, control = _counted(case.candidate, failures), _counted(case.control, failures)
    baseline = _counted(case.baseline, failures)
    phi = case.dispersion
    if not case.control.total:
        silent = candidate.bad / phi >= PATIENCE_SILENT
        return (
            (Verdict.REJECT, f"{over}; the stable replicas had no request to compare with")
            if silent
            else None
        )
    if _was_bad(case, baseline, bound):
        return Verdict.REJECT, f"{over}; the stable replicas, which were over it before, had {_of(control)}"
    odds = log_odds_shared(candidate.scaled(phi), control.scaled(phi), baseline.scaled(phi), bound)
    theirs = f"the stable replicas had {_of(control)}"
    if odds <= -math.log(ODDS_TO_BLAME):
        return Verdict.REJECT, f"{over}; {theirs}"
    if odds >= math.log(ODDS_TO_VOID):
        return Verdict.VOID, f"{over}, but {theirs} at the same time: the environment moved, nobody is blamed"
    if candidate.bad / phi >= PATIENCE_UNDECIDED:
        return Verdict.VOID, f"{over}, but {theirs}, too few to tell whose fault it is: nobody is blamed"
    return None


def _was_bad(case: _Case, baseline: Share, bound: float) -> bool:
    """Whether the control was over the bound in its own baseline: then its being so now is no move of anything."""
    evidence = log_e_above(baseline.bad / case.dispersion, baseline.total / case.dispersion, bound)
    return float(evidence) >= -math.log(case.levels.reject_alpha)


def _of(share: Share) -> str:
    return f"{share.bad:.0f} of {share.total:.0f}"


def _counted(counts: Counts, failures: bool) -> Share:
    return Share(counts.failed if failures else counts.bad_at_least, counts.total)


def _share(number: int, case: _Case) -> float:
    return number / case.candidate.total if case.candidate.total else 0.0


def _why_inconclusive(case: _Case) -> str:
    if not case.candidate.total:
        return "no data is not success"
    if case.candidate.failed > case.error_ceiling * case.candidate.total:
        return (
            f"where {_percent(case.allowed)} is allowed, {case.candidate.failed} of them failed where "
            f"{_percent(case.error_ceiling)} may: too few requests to say more"
        )
    return f"where {_percent(case.allowed)} is allowed: too few requests to say more"


def _judgement(case: _Case, verdict: Verdict, why: str) -> Judgement:
    counts = case.candidate
    bad = counts.bad_at_least if verdict in (Verdict.REJECT, Verdict.VOID) else counts.bad_at_most
    phi = case.dispersion
    low = anytime_interval(counts.bad_at_least / phi, counts.total / phi)[0]
    high = anytime_interval(counts.bad_at_most / phi, counts.total / phi)[1]
    control = case.control or Counts(0, 0, 0, 0)
    return Judgement(
        verdict=verdict,
        estimate=_share(bad, case),
        interval=(low, high),
        total=counts.total,
        bad=bad,
        control_total=control.total,
        control_bad=control.bad_at_least,
        dispersion=phi,
        log_e_accept=case.log_e_accept,
        log_e_reject=case.log_e_reject,
        reason=f"{verdict.name}: {_observed(case, bad, (low, high))} {why}",
    )


def _observed(case: _Case, bad: int, interval: tuple[float, float]) -> str:
    if not case.candidate.total:
        return "no request came in this window;"
    limits = f"{_hundredths(interval[0])}–{_hundredths(interval[1])} %"
    share = _percent(_share(bad, case))
    return f"{bad} of {case.candidate.total} requests slow or failed ({share}, 95 % interval {limits})"


def _percent(share: float) -> str:
    return f"{_hundredths(share)} %"


def _hundredths(share: float) -> str:
    """Two digits that matter, never in powers of ten."""
    hundredths = 100 * share
    if hundredths >= 9.95:
        return f"{hundredths:.0f}"
    return f"{hundredths:.2g}" if hundredths >= 0.001 else "0"
