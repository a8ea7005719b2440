"""What all answers have in common: frozen, nothing unknown in them, and pages of lists."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")


class Answer(BaseModel):
    """An answer or a part of one."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Page(Answer, Generic[T]):
    """A bounded part of a list."""

    items: list[T] = Field(description="The items of this page, in the order asked for.")
    next_cursor: str | None = Field(
        description="Pass it as `cursor`, with the same filters and sort, for the page that follows; null on the last.",
        examples=["WyIyMDI2LTAxLTA1VDAyOjAwOjAwKzAwOjAwIiwgInN0dWR5LTEiLCAzXQ"],
    )
