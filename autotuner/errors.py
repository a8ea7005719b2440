"""The errors of the autotuner, told apart by what the caller can do about them.

Fix the input, retry, ask a person, read again, or look elsewhere: whoever catches one of these knows the next move
without reading the message. Adapters translate the exceptions of the libraries they guard into these and chain the
cause; nothing inward of an adapter knows a foreign exception.
"""


class AutotunerError(Exception):
    """Anything the autotuner itself raises; `str()` is one sentence that a person understands.

    The children keep their arguments as `args` and build the sentence in `__str__`, so that they survive the trip
    from a worker process back to its parent.
    """


class InvalidInput(AutotunerError):
    """The input cannot be used as it is: fix it and ask again. Retrying unchanged never helps.

    field: where the value stands, as its writer knows it (`slo.p99_ms`, `--trials`).
    value: what was found there. allowed: what would have been accepted, in words.
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.field = field
        self.value = value
        self.allowed = allowed

    def __str__(self) -> str:
        return f"{self.field}: {_shown(self.value)} is not allowed; allowed: {self.allowed}"


class Unavailable(AutotunerError):
    """An outside system did not answer, or not in time: retry, with back-off. Nothing is known about the effect.

    system: which one, as an operator knows it (`triton at 127.0.0.1:8000`, `postgres`).
    """

    def __init__(self, system: str, detail: str) -> None:
        super().__init__(system, detail)
        self.system = system
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.system} is unavailable: {self.detail}"


class Refused(AutotunerError):
    """The outside system, or a rule of ours, understood and said no: change the plan or ask a person.

    reason: one sentence with what was asked for, who refused, and why.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Conflict(AutotunerError):
    """Somebody else changed it first, or the lease is lost: drop what was read, read again, decide again.

    subject: what changed hands (`lease of target vision`, `study 7f3a`). detail: expected against found.
    """

    def __init__(self, subject: str, detail: str) -> None:
        super().__init__(subject, detail)
        self.subject = subject
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.subject}: {self.detail}"


class Outdated(Conflict):
    """A change was asked for of a version that is no longer the newest: read again, then ask again."""


class Overtaken(Conflict):
    """An operator's wish came before the decision was recorded: decide again, knowing of it."""


class Unauthenticated(AutotunerError):
    """Nobody is known by what was shown, or nothing was shown: get a valid token. reason: which of these, no more."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"not authenticated: {self.reason}"


class Forbidden(AutotunerError):
    """Who asks is known, and may not: ask somebody who may. reason: one sentence that says what would be needed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NotFound(AutotunerError):
    """No such thing is recorded: check the name. kind: what was looked for (`study`); key: by which name."""

    def __init__(self, kind: str, key: object) -> None:
        super().__init__(kind, key)
        self.kind = kind
        self.key = key

    def __str__(self) -> str:
        return f"no {self.kind} is known as {_shown(self.key)}"


def _shown(value: object, limit_characters: int = 200) -> str:
    """`repr()` of a value, cut so that a pasted file does not become an error message."""
    text = repr(value)
    return text if len(text) <= limit_characters else text[: limit_characters - 1] + "…"
