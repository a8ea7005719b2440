"""The doors to what is remembered and agreed on: stores, leases, notices, tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from autotuner.domain.access import Identity, Said, Token
from autotuner.domain.allowance import Drawn, Rate
from autotuner.domain.calendar import Freeze, Line, Night, Schedule, Standing
from autotuner.domain.registration import Registration, Wanted
from autotuner.domain.sharing import Errand
from autotuner.domain.slo import SloBudget
from autotuner.domain.study import Study, Wish
from autotuner.domain.target import Target
from autotuner.ports.kept import (
    AuditRecord,
    Grant,
    JournalEntry,
    Listening,
    Message,
    MessageState,
    Muster,
    NightRecord,
    RequestKey,
    SlowTrace,
    StartedBefore,
    StudySummary,
)


class Leases(Protocol):
    """Who drives which target."""

    def acquire(self, target: str, holder: str, ttl: timedelta) -> Grant | None:
        """Take or renew the lease on `target`; None while somebody else holds it. Raises Unavailable."""

    def renew(self, grants: Sequence[Grant], ttl: timedelta) -> frozenset[str]:
        """Renew many leases in one go; returns the targets of those that are still held. Raises Unavailable."""

    def muster(self, holder: str, ttl: timedelta) -> Muster:
        """Say that the worker `holder` is alive for another `ttl`, and return who else is. Raises Unavailable."""

    def dismiss(self, holder: str) -> None:
        """Say that the worker `holder` is gone, so that the others take its share at once. Raises Unavailable."""

    def release(self, grant: Grant) -> None:
        """Give the lease back; nothing happens when it is no longer held."""


class Store(Protocol):
    """Everything that is remembered. One call is one transaction. All raise Unavailable when it does not answer."""

    def save_target(
        self, target: Target, slo: SloBudget, actor: str, reason: str, now: datetime
    ) -> SloBudget:
        """Create or change a target; a changed budget becomes a new version. Returns the version in force.

        Raises InvalidInput when the budget is loosened without a reason.
        """

    def target(self, name: str) -> tuple[Target, SloBudget]:
        """Return a target and its newest budget. Raises NotFound."""

    def budgets(self, name: str) -> Sequence[SloBudget]:
        """Return every version of a target's budget, oldest first."""

    def create_study(self, study: Study, key: RequestKey | None = None) -> None:
        """Record a new study, and under which request key it was asked for.

        Raises Conflict when the target has an unfinished one or the key was used before, Refused when the target is
        retired.
        """

    def started_before(self, actor: str, key: str) -> StartedBefore | None:
        """Return what `actor` started under a request key; None when it was never used."""

    def study(self, study_id: str) -> Study:
        """Return a study as it stands. Raises NotFound. The name `latest` means the newest one."""

    def unfinished(self) -> Sequence[tuple[str, str]]:
        """Return (study id, target name) of every study that has not ended, oldest first."""

    def errands(self) -> Sequence[Errand]:
        """Return every study that has not ended, as workers share them out, oldest first."""

    def studies(self, target: str | None = None, limit: int = 50) -> Sequence[StudySummary]:
        """Return studies, newest first."""

    def append(self, before: Study, after: Study, entry: JournalEntry, grant: Grant) -> None:
        """Record a decision or an outcome together with the study it leads to.

        Raises Conflict when `grant` is no longer the newest for the target, or when `entry.sequence` is not the
        next one; Overtaken when a cancellation is recorded that the decision did not know of and would make too late:
        then nothing is written.
        """

    def next_sequence(self, study_id: str) -> int:
        """Return the sequence number of the next journal entry of a study."""

    def journal(self, study_id: str, after: int = 0) -> Sequence[JournalEntry]:
        """Return the journal of a study from the entry after `after` on, in order."""

    def initial(self, study_id: str) -> Study:
        """Return a study as it was created, before its first journal entry. Raises NotFound."""

    def wish(self, study_id: str) -> Wish:
        """Return what an operator last asked of the study."""

    def set_wish(self, study_id: str, wish: Wish, actor: str, reason: str, now: datetime) -> None:
        """Record an operator's wish; the next tick obeys.

        Raises NotFound; Conflict when the study has ended, or it is too late to cancel it.
        """

    def kept_up(self, study_id: str, replica: str, said: Said) -> None:
        """Record that a replica is given again what a study promoted. Raises NotFound without the study."""

    def audit(self, limit: int = 100, subject: str | None = None) -> Sequence[AuditRecord]:
        """Return the newest audit records, newest first."""

    def first_broken_audit(self) -> int | None:
        """Return the number of the first audit record that does not fit the hash chain; None when all fit."""

    def standing(self, now: datetime) -> Standing:
        """Return what keeps production as it is: the line, freezes that are not over, and blackout dates."""


class Nights(Protocol):
    """Schedules, freezes, the line, and settled nights. One call is one transaction. All raise Unavailable.

    mark: what a schedule was last seen with; None for whatever it is now, empty for one that must be new.
    """

    def set_schedule(self, schedule: Schedule, said: Said, mark: str | None = None) -> Schedule:
        """Create or change a target's schedule.

        Raises NotFound for an unknown target, Outdated when it has changed since `mark`, Conflict when it should be new
        and is not.
        """

    def remove_schedule(self, target: str, said: Said, mark: str | None = None) -> None:
        """Remove a target's schedule; nights that were settled stay on record. Raises NotFound, Outdated."""

    def schedules(self, targets: Sequence[str] | None = None) -> Sequence[Schedule]:
        """Return the schedules of these targets, or every one, by target."""

    def stop_line(self, said: Said) -> Line:
        """Stop the line; nothing changes when it is stopped already. Raises InvalidInput without a reason."""

    def release_line(self, said: Said) -> Line:
        """Let the line run again; nothing changes when it runs."""

    def add_freeze(self, freeze: Freeze, said: Said) -> Freeze:
        """Record a freeze and return it with its number. Raises NotFound for an unknown target."""

    def remove_freeze(self, number: int, said: Said) -> None:
        """End a freeze. Raises NotFound."""

    def standing(self, now: datetime) -> Standing:
        """Return what keeps production as it is; see `Store.standing`."""

    def start_night(self, night: Night, study: Study, said: Said) -> bool:
        """Record the study of a night, together with the night being started: both or neither.

        False when the night is settled already: then nothing is written. Raises what `Store.create_study` raises.
        """

    def miss_night(self, night: Night, said: Said) -> bool:
        """Record that a night did not start, with the reason, and a notice of it; False when it is settled already."""

    def close_nights(self, inconclusive_nights: int, now: datetime) -> int:
        """Note the outcome of every started night whose study has ended; returns how many.

        Where that makes `inconclusive_nights` inconclusive ones in a row for a target, a notice is written as well.
        """

    def settled_until(self) -> Mapping[str, datetime]:
        """Return when the newest settled night of each target was due."""

    def nights(
        self, target: str | None = None, limit: int = 50, after: tuple[datetime, str] | None = None
    ) -> Sequence[NightRecord]:
        """Return settled nights, newest first, those of the same instant by target.

        after: when the last one of the page before was due, and its target.
        """


class Outbox(Protocol):
    """Notices that are to be delivered, written in the transaction of what they tell. All raise Unavailable."""

    def due(self, now: datetime, limit: int) -> Sequence[Message]:
        """Return pending messages whose next attempt is due, oldest first."""

    def settle(self, message: Message) -> None:
        """Record what an attempt came to; nothing happens when the message was settled meanwhile."""

    def messages(self, state: MessageState | None = None, limit: int = 50) -> Sequence[Message]:
        """Return messages, newest first."""

    def retry(self, number: int, now: datetime) -> Message:
        """Let a dead message be tried again. Raises NotFound, Conflict when it is not dead."""


class Webhook(Protocol):
    """Somewhere a message is delivered to."""

    @property
    def name(self) -> str:
        """What it is known by; gives nothing away of its address, which may be a secret."""

    def send(self, message: Message, now: datetime) -> None:
        """Deliver a message. Raises Unavailable, Refused."""


class Leadership(Protocol):
    """Which one of several schedulers leads."""

    def leads(self) -> bool:
        """Lead, or go on leading, if nobody else does; says whether this one does."""

    def resign(self) -> None:
        """Let another one lead."""


class Registry(Protocol):
    """What is registered of targets. One call is one transaction. All raise Unavailable.

    mark: what a `Registration` was last seen with; None for whatever it is now, empty for one that must be new.
    """

    def registration(self, name: str) -> Registration:
        """Return a target with its newest budget and its defaults, retired or not. Raises NotFound."""

    def register(self, wanted: Wanted, mark: str | None, said: Said) -> Registration:
        """Create, change or revive a target; a changed budget becomes a new version.

        Raises Outdated when it has changed since `mark`; Conflict when it should be new and is not; NotFound when it
        should be there and is not; Refused when it is retired; InvalidInput when a budget is loosened without a reason,
        or a new target has none.
        """

    def set_budget(self, name: str, slo: SloBudget, version: int, said: Said) -> SloBudget:
        """Make a new version of a budget, unless it promises the same; returns the version in force.

        Raises Outdated when `version` is not in force any more, NotFound, InvalidInput as `register` does.
        """

    def retire(self, name: str, mark: str | None, said: Said) -> Registration:
        """Let no study of a target start any more; nothing changes for one that is retired already.

        Raises NotFound, Outdated, Conflict while a study of it has not ended.
        """


class Allowances(Protocol):
    """How often each caller may still ask, whichever process they ask."""

    def draw(self, whose: str, wanted: int, rate: Rate) -> Drawn:
        """Take at most `wanted` requests out of a caller's bucket, which begins full. Raises Unavailable."""


class Tokens(Protocol):
    """Bearer tokens, known by the digest of their secret. One call is one transaction. All raise Unavailable."""

    def add(self, token: Token, digest: str) -> None:
        """Record a new token. digest: SHA-256 of its secret, hexadecimal. Raises Conflict when one is known already."""

    def by_digest(self, digest: str) -> Token | None:
        """Return the token whose secret has this digest, ended or not; None when there is none."""

    def newest(self, limit: int = 100) -> Sequence[Token]:
        """Return tokens, newest first, ended ones too."""

    def revoke(self, token_id: str, actor: str, reason: str, now: datetime) -> Token:
        """End a token and return it; one that was ended before stays as it is. Raises NotFound."""

    def note_use(self, token_id: str, now: datetime) -> None:
        """Record that the token was shown at `now`; nothing happens when it is unknown."""


class ReceivedSpans(Protocol):
    """Spans of slow requests that were sent here, dropped after an hour. All raise Unavailable."""

    def listening(self) -> Sequence[Listening]:
        """Return the targets with a study that has not ended whose spans are sent here."""

    def keep(self, traces: Sequence[SlowTrace], now: datetime) -> None:
        """Keep slow requests, and drop what is old or more than is kept of a target."""

    def forget(self, now: datetime) -> None:
        """Drop what is old."""

    def slow(self, target: str, began: datetime, ended: datetime) -> Sequence[SlowTrace]:
        """Return the slow requests of a target that ended between two instants, each whole, newest first."""


class Issuer(Protocol):
    """An OpenID Connect issuer whose signed tokens are believed."""

    def identity(self, credential: str) -> Identity:
        """Return whom a signed JWT stands for. Raises Unauthenticated, Unavailable when its keys cannot be read."""

    def close(self) -> None:
        """Give back what was opened."""
