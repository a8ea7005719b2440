"""Lists of which each kind of question has a statement of its own, made when it is asked for the first time.

Which values narrow a list, how it is sorted, and whether it goes on from a mark make a kind. Statements of one kind
differ in their values alone; to make one anew costs the processor twice as much as to send it and read the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, Row, Select, Text, bindparam, func, tuple_
from sqlalchemy.dialects.postgresql import ARRAY

from autotuner.bookkeeping.rules import plain
from autotuner.catalogue import Mark, Window

_MOST = "most_rows"


@dataclass(frozen=True, eq=False)
class Order:
    """How a list is sorted: by these keys, which no two rows share, all of them ascending or all descending."""

    keys: tuple[ColumnElement[Any], ...]
    descending: bool = False

    def mark(self, row: Row[Any]) -> Mark:
        """Return the mark of a row that has all keys among its columns."""
        return tuple(row._mapping[key] for key in self.keys)


class Listing:
    """A list in pages. Safe to share between threads: a kind that two ask for first at once is made twice.

    query: its columns. conditions: what narrows it, by the name of the value that the condition is about.
    """

    def __init__(self, query: Select[Any], conditions: Mapping[str, ColumnElement[bool]]) -> None:
        self._query = query
        self._conditions = conditions
        self._made: dict[tuple[frozenset[str], Order, bool], Select[Any]] = {}

    def page(
        self,
        connection: Connection,
        values: Mapping[str, Any],
        order: Order,
        window: Window,
        mark_of: Callable[[Row[Any]], Mark] | None = None,
    ) -> tuple[list[Row[Any]], Mark | None]:
        """Return the rows of one page and the mark of the next: one row more is read than the page holds.

        values: by name; None narrows nothing. mark_of: a row's mark, where its keys are not columns of the query.
        """
        given = {name: _said(value) for name, value in values.items() if value is not None}
        statement = self._statement(frozenset(given), order, window.after is not None)
        marked = {_after(number): value for number, value in enumerate(window.after or ())}
        found = connection.execute(statement, {**given, **marked, _MOST: window.limit + 1}).all()
        rows = list(found[: window.limit])
        if len(found) <= window.limit:
            return rows, None
        return rows, (mark_of or order.mark)(rows[-1])

    def _statement(self, given: frozenset[str], order: Order, marked: bool) -> Select[Any]:
        kind = (given, order, marked)
        known = self._made.get(kind)
        if known is None:
            known = self._made[kind] = self._make(*kind)
        return known

    def _make(self, given: frozenset[str], order: Order, marked: bool) -> Select[Any]:
        query = self._query.where(*(self._conditions[name] for name in sorted(given)))
        if marked:
            here = tuple_(*order.keys)
            there = tuple_(*(bindparam(_after(n), type_=key.type) for n, key in enumerate(order.keys)))
            query = query.where(here < there if order.descending else here > there)
        keys = (key.desc() if order.descending else key for key in order.keys)
        return query.order_by(*keys).limit(bindparam(_MOST, type_=Integer))


def equal(**columns: ColumnElement[Any]) -> dict[str, ColumnElement[bool]]:
    """Return conditions that a column has the value of the name it is given under."""
    return {name: known == bindparam(name) for name, known in columns.items()}


def within(instant: ColumnElement[Any]) -> dict[str, ColumnElement[bool]]:
    """Return the conditions `since`, which the instant itself fulfils, and `until`, which it does not."""
    return {"since": instant >= bindparam("since"), "until": instant < bindparam("until")}


def between(name: str, known: ColumnElement[Any]) -> dict[str, ColumnElement[bool]]:
    """Return the conditions `NAME_least` and `NAME_most`, both included."""
    least, most = f"{name}_least", f"{name}_most"
    return {least: known >= bindparam(least), most: known <= bindparam(most)}


def among(known: ColumnElement[str], name: str) -> ColumnElement[bool]:
    """Return the condition that a column has one of the texts of `name`."""
    return known == func.any(bindparam(name, type_=ARRAY(Text)))


def _said(value: Any) -> Any:
    return plain(value) if isinstance(value, str) else value


def _after(number: int) -> str:
    return f"after_{number}"
