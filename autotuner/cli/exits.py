"""The exit codes of every command, in one table; `docs/exit-codes.md` shows the same one."""

from __future__ import annotations

from enum import IntEnum

from autotuner.domain.study import Outcome
from autotuner.errors import (
    AutotunerError,
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    Refused,
    Unauthenticated,
    Unavailable,
)


class Exit(IntEnum):
    """What a process's exit code means."""

    DONE = 0
    UNEXPECTED = 1
    INVALID_INPUT = 2
    INCONCLUSIVE = 3
    ABORTED = 4
    UNAVAILABLE = 5
    CONFLICT = 6
    REFUSED = 7
    DIFFERS = 8
    NOT_FOUND = 9
    INTERRUPTED = 130


MEANINGS: dict[Exit, str] = {
    Exit.DONE: "done; of a study: a winner was promoted, the incumbent kept on evidence, or a promotion taken back",
    Exit.UNEXPECTED: "an error nobody foresaw: report it, with what `autotuner --debug …` prints",
    Exit.INVALID_INPUT: "an argument, a file or a setting cannot be used: the message names it and what is allowed",
    Exit.INCONCLUSIVE: "no evidence either way, so the incumbent serves on; of a diagnosis: no request came",
    Exit.ABORTED: "the study was stopped (cancelled, harm budget, changed from outside); the incumbent serves on",
    Exit.UNAVAILABLE: "the database or another system does not answer: try again",
    Exit.CONFLICT: "somebody else did it first, or the study has ended: look again, then decide again",
    Exit.REFUSED: "a system or a rule said no; the message says which and why",
    Exit.DIFFERS: "a replay, or the audit's chain, does not agree with the records",
    Exit.NOT_FOUND: "no such target, study or trial is recorded, or no such model is served",
    Exit.INTERRUPTED: "interrupted with Ctrl-C; a study it carried was cancelled and the incumbent restored",
}

_OUTCOMES = {
    Outcome.PROMOTED: Exit.DONE,
    Outcome.KEPT: Exit.DONE,
    Outcome.INCONCLUSIVE: Exit.INCONCLUSIVE,
    Outcome.ABORTED: Exit.ABORTED,
    Outcome.ROLLED_BACK: Exit.DONE,
}

_ERRORS: tuple[tuple[type[AutotunerError], Exit], ...] = (
    (InvalidInput, Exit.INVALID_INPUT),
    (Unavailable, Exit.UNAVAILABLE),
    (Conflict, Exit.CONFLICT),
    (NotFound, Exit.NOT_FOUND),
    (Refused, Exit.REFUSED),
    (Unauthenticated, Exit.REFUSED),
    (Forbidden, Exit.REFUSED),
)


def exit_code_of(outcome: Outcome | None) -> Exit:
    """Return the exit code for how a study ended; None, for one that has not ended, is UNEXPECTED."""
    return Exit.UNEXPECTED if outcome is None else _OUTCOMES[outcome]


def exit_code_for(error: BaseException) -> Exit:
    """Return the exit code for what a command raised."""
    return next((code for kind, code in _ERRORS if isinstance(error, kind)), Exit.UNEXPECTED)
