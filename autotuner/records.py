"""Records as plain JSON values and back, exactly: what is stored can be computed again to the last digit.

cattrs does the walking; only what JSON cannot say is decided here. Instants are RFC 3339 text, durations are
seconds, an unbounded number is the text `inf`, and a member of a union carries its class name in `type`.

A study is written at every look, and little of it has changed since the last one: `study_text` remembers the text of
each part for as long as the part lives. Parts are frozen, so a text once made stays true.
"""

from __future__ import annotations

import hashlib
import json
import math
import weakref
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import date, datetime, timedelta
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, TypeVar

from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.strategies import configure_tagged_union

from autotuner.domain.measurement import GatewayCounters, Sample, ServerCounters
from autotuner.domain.registration import StudyDefaults
from autotuner.domain.study import Action, Increment, Incumbent, OpenWindow, Step, Study, StudyPlan, Trial
from autotuner.domain.target import Gateway, Replica, Target

T = TypeVar("T")


def _converter() -> Converter:
    made = Converter(forbid_extra_keys=False)
    made.register_unstructure_hook(date, lambda value: value.isoformat())
    made.register_unstructure_hook(datetime, lambda value: value.isoformat())
    made.register_structure_hook(datetime, lambda value, _: datetime.fromisoformat(value))
    made.register_unstructure_hook(timedelta, lambda value: value.total_seconds())
    made.register_structure_hook(timedelta, lambda value, _: timedelta(seconds=value))
    made.register_unstructure_hook(float, lambda value: float(value) if math.isfinite(value) else str(value))
    configure_tagged_union(Action, made, tag_name="type")
    _add_what_came_later(made)
    return made


def _add_what_came_later(made: Converter) -> None:
    """Leave out what records did not have at first where it says nothing, so that they stay what they were."""
    silent = override(omit_if_default=True)
    for kind in (GatewayCounters, ServerCounters):
        made.register_unstructure_hook(kind, make_dict_unstructure_fn(kind, made, counted_by=silent))
    made.register_unstructure_hook(Increment, make_dict_unstructure_fn(Increment, made, arrived=silent))
    made.register_unstructure_hook(Step, make_dict_unstructure_fn(Step, made, batches=silent, arrived=silent))
    made.register_unstructure_hook(Replica, make_dict_unstructure_fn(Replica, made, backend=silent))
    made.register_unstructure_hook(Gateway, make_dict_unstructure_fn(Gateway, made, clusters=silent))
    made.register_unstructure_hook(
        Target, make_dict_unstructure_fn(Target, made, metrics=silent, workload=silent)
    )
    made.register_unstructure_hook(
        StudyDefaults, make_dict_unstructure_fn(StudyDefaults, made, max_dispersion=silent)
    )
    write, read = make_dict_unstructure_fn(StudyPlan, made), make_dict_structure_fn(StudyPlan, made)

    def written(plan: StudyPlan) -> dict[str, Any]:
        record: dict[str, Any] = write(plan)
        if not plan.keeps_batches:
            del record["keeps_batches"]
        if plan.reverses is None:
            del record["reverses"]
        return record

    def as_it_was(record: Mapping[str, Any], kind: type[StudyPlan]) -> StudyPlan:
        plan: StudyPlan = read({"keeps_batches": False, **record}, kind)
        return plan

    made.register_unstructure_hook(StudyPlan, written)
    made.register_structure_hook(StudyPlan, as_it_was)
    made.register_unstructure_hook(Study, make_dict_unstructure_fn(Study, made, canary_since=silent))


_CONVERTER = _converter()


def to_record(value: object, as_type: Any = None) -> Any:
    """Return `value` as JSON-ready data. Pass `as_type` for a member of a union (an `Action`)."""
    return _CONVERTER.unstructure(value, as_type if as_type is not None else type(value))


def from_record(kind: type[T] | Any, record: Any) -> T:
    """Return the value of type `kind` that `to_record` made `record` from. Raises cattrs errors for other data."""
    made: T = _CONVERTER.structure(record, kind)
    return made


_COMPACT = json.JSONEncoder(sort_keys=True, separators=(",", ":"))

COMPOSED = (Study, Trial, OpenWindow)
"""Parts whose text is put together from the texts of their fields."""

KEPT = (StudyPlan, Incumbent, Trial, Step, OpenWindow, Sample, Increment)
"""Parts whose text is remembered."""


class _Texts:
    """The text of each part that is alive, by identity: parts hold mappings, so they cannot be keys themselves."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[object], str]] = {}

    def get(self, part: object) -> str | None:
        found = self._kept.get(id(part))
        return found[1] if found is not None and found[0]() is part else None

    def keep(self, part: object, text: str) -> None:
        key = id(part)
        self._kept[key] = (weakref.ref(part, lambda gone: self._drop(key, gone)), text)

    def _drop(self, key: int, gone: weakref.ref[object]) -> None:
        found = self._kept.get(key)
        if found is not None and found[0] is gone:
            self._kept.pop(key, None)


_TEXTS = _Texts()


def study_text(study: Study) -> str:
    """Return a study as compact JSON with sorted keys: what is stored, and what its digest is made of."""
    return _part_text(study)


def head_text(study: Study) -> str:
    """Return a study's text as if its newest trial had no open window."""
    return _part_text(_without_window(study))


def window_text(study: Study) -> str | None:
    """Return the text of the open window of a study's newest trial, if it has one."""
    window = study.trials[-1].window if study.trials else None
    return None if window is None else _part_text(window)


def only_looked(before: Study, after: Study) -> bool:
    """Say whether `after` is `before` with another window open in its newest trial, and nothing else."""
    if before.trials[:-1] != after.trials[:-1] or len(before.trials) != len(after.trials) or not after.trials:
        return False
    if any(_differs(before, after, each.name) for each in fields(Study) if each.name != "trials"):
        return False
    old, new = before.trials[-1], after.trials[-1]
    return new.window is not None and not any(
        _differs(old, new, each.name) for each in fields(Trial) if each.name != "window"
    )


def _differs(before: object, after: object, name: str) -> bool:
    was, now = getattr(before, name), getattr(after, name)
    return was is not now and was != now


def _without_window(study: Study) -> Study:
    if not study.trials or study.trials[-1].window is None:
        return study
    return replace(study, trials=(*study.trials[:-1], replace(study.trials[-1], window=None)))


def _part_text(part: object) -> str:
    kept = _TEXTS.get(part) if isinstance(part, KEPT) else None
    if kept is not None:
        return kept
    text = _composed(part) if isinstance(part, COMPOSED) else _compact(part)
    if isinstance(part, KEPT):
        _TEXTS.keep(part, text)
    return text


def _composed(part: Any) -> str:
    held = [(name, getattr(part, name)) for name in SORTED_FIELDS[type(part)]]
    values = [
        f'"{name}":{_field_text(value)}' for name, value in held if value is not None or name not in SILENT
    ]
    return "{" + ",".join(values) + "}"


SILENT = frozenset({"canary_since"})
"""Fields that came later: without a value they are left out, so that records stay what they were."""


SORTED_FIELDS = {kind: tuple(sorted(each.name for each in fields(kind))) for kind in COMPOSED}


def _field_text(value: object) -> str:
    """Return a field's text; what is most common is written without asking the converter."""
    kind = type(value)
    if value is None:
        return "null"
    if kind is str:
        return _quoted(str(value))
    if kind is int:
        return repr(value)
    if kind in KEPT:
        return _part_text(value)
    if isinstance(value, tuple) and value and type(value[0]) in KEPT:
        return "[" + ",".join(map(_part_text, value)) + "]"
    return _compact(value)


def _compact(value: object) -> str:
    return _COMPACT.encode(to_record(value))


def digest(study: Study) -> str:
    """Return a digest of a study: equal digests mean equal records."""
    return hashlib.sha256(study_text(study).encode()).hexdigest()
