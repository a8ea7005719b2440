"""A problem, as RFC 9457 has it, with the field and what is allowed there."""

from __future__ import annotations

from pydantic import Field

from api.schemas.wire import Answer


class FieldProblem(Answer):
    """What is wrong with one field."""

    field: str = Field(description="Where the value stands: a path with dots.", examples=["slo.p99_ms"])
    allowed: str = Field(
        description="What is allowed there.", examples=["milliseconds above 0, up to 600000"]
    )
    detail: str = Field(
        description="The whole sentence.",
        examples=["slo.p99_ms: -5 is not allowed; allowed: milliseconds above 0, up to 600000"],
    )


class Problem(Answer):
    """Why a request was not done."""

    type: str = Field(
        description="A stable URN to branch on; the table in docs/api.md lists all.",
        examples=["urn:autotuner:problem:invalid-input"],
    )
    title: str = Field(description="The type in words.", examples=["The input cannot be used"])
    status: int = Field(description="The HTTP status.", examples=[422], ge=400, le=599)
    detail: str = Field(
        description="What happened this time; its words may change.",
        examples=["slo.p99_ms: -5 is not allowed; allowed: milliseconds above 0, up to 600000"],
    )
    request_id: str = Field(
        description="The request's X-Request-ID, to find it in the logs.", examples=["5f2c1b9e8d7a4c3b"]
    )
    field: str | None = Field(None, description="The first field at fault.", examples=["slo.p99_ms"])
    allowed: str | None = Field(
        None, description="What is allowed there.", examples=["milliseconds above 0, up to 600000"]
    )
    problems: list[FieldProblem] | None = Field(
        None, description="Every field at fault, when there are several."
    )
