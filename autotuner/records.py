"""Records as plain JSON values and back, exactly: what is stored can be computed again to the last digit.

cattrs does the walking; only what JSON cannot say is decided here. Instants are RFC 3339 text, durations are
seconds, an unbounded number is the text `inf`, and a member of a union carries its class name in `type`.

A study is written at every look, and little of it has changed since the last one: `study_text` remembers the text of
each part for as long as the part lives. Parts are frozen, so a text once made stays true.
"""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import date, datetime, timedelta
from functools import cached_property, lru_cache
from json.encoder import encode_basestring_ascii as _quoted
from math import isfinite
from operator import attrgetter
from typing import Any, Generic, TypeVar

from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.strategies import configure_tagged_union

from autotuner.domain.calendar import Clearance
from autotuner.domain.configuration import Configuration
from autotuner.domain.judgement import Counts
from autotuner.domain.measurement import BatchTiming, GatewayCounters, Sample, ServerCounters
from autotuner.domain.observation import Observation
from autotuner.domain.registration import StudyDefaults
from autotuner.domain.study import (
    Action,
    Increment,
    Incumbent,
    Level,
    OpenWindow,
    Proposal,
    Step,
    Study,
    StudyPlan,
    Trial,
)
from autotuner.domain.target import Gateway, Replica, Target
from autotuner.domain.workload import RouteReference

T = TypeVar("T")

_FIRST_METHOD = 1
"""The grey-box method of plans that were recorded before its version was."""


LATER_OF_PLANS = ("keeps_batches", "tells_needs", "keeps_counts")
"""What plans do that were recorded since it was possible; those before do without, and are written as they were."""


def _converter() -> Converter:
    made = Converter(forbid_extra_keys=False)
    made.register_unstructure_hook(date, lambda value: value.isoformat())
    made.register_unstructure_hook(datetime, lambda value: value.isoformat())
    made.register_structure_hook(datetime, lambda value, _: datetime.fromisoformat(value))
    made.register_unstructure_hook(timedelta, lambda value: value.total_seconds())
    made.register_structure_hook(timedelta, lambda value, _: timedelta(seconds=value))
    made.register_unstructure_hook(float, lambda value: float(value) if isfinite(value) else str(value))
    configure_tagged_union(Action, made, tag_name="type")
    _add_what_came_later(made)
    return made


def _add_what_came_later(made: Converter) -> None:
    """Leave out what records did not have at first where it says nothing, so that they stay what they were."""
    silent = override(omit_if_default=True)
    later: Mapping[type, tuple[str, ...]] = {
        GatewayCounters: ("counted_by",),
        ServerCounters: ("counted_by", "model_versions"),
        Increment: ("arrived",),
        Step: ("batches", "arrived", "model_versions", "counted", "slow"),
        Incumbent: ("provenance",),
        Observation: ("provenances", "told"),
        Replica: ("backend", "pod"),
        RouteReference: ("backend",),
    }
    for kind, names in later.items():
        unless_said: dict[str, Any] = dict.fromkeys(names, silent)
        made.register_unstructure_hook(kind, make_dict_unstructure_fn(kind, made, **unless_said))
    made.register_unstructure_hook(Gateway, make_dict_unstructure_fn(Gateway, made, clusters=silent))
    made.register_unstructure_hook(
        Target, make_dict_unstructure_fn(Target, made, metrics=silent, workload=silent, traces=silent)
    )
    made.register_unstructure_hook(
        StudyDefaults, make_dict_unstructure_fn(StudyDefaults, made, max_dispersion=silent)
    )
    made.register_unstructure_hook(
        Proposal, make_dict_unstructure_fn(Proposal, made, highest_rate_per_second=silent)
    )
    write, read = make_dict_unstructure_fn(StudyPlan, made), make_dict_structure_fn(StudyPlan, made)

    def written(plan: StudyPlan) -> dict[str, Any]:
        record: dict[str, Any] = write(plan)
        if plan.reverses is None:
            del record["reverses"]
        if plan.method == _FIRST_METHOD:
            del record["method"]
        for name in LATER_OF_PLANS:
            if not getattr(plan, name):
                del record[name]
        return record

    def as_it_was(record: Mapping[str, Any], kind: type[StudyPlan]) -> StudyPlan:
        at_first = {"method": _FIRST_METHOD, **dict.fromkeys(LATER_OF_PLANS, False)}
        plan: StudyPlan = read({**at_first, **record}, kind)
        return plan

    made.register_unstructure_hook(StudyPlan, written)
    made.register_structure_hook(StudyPlan, as_it_was)
    made.register_unstructure_hook(
        Study, make_dict_unstructure_fn(Study, made, canary_since=silent, proposed_to=silent)
    )


_CONVERTER = _converter()


def to_record(value: object, as_type: Any = None) -> Any:
    """Return `value` as JSON-ready data. Pass `as_type` for a member of a union (an `Action`)."""
    return _CONVERTER.unstructure(value, as_type if as_type is not None else type(value))


def from_record(kind: type[T] | Any, record: Any) -> T:
    """Return the value of type `kind` that `to_record` made `record` from. Raises cattrs errors for other data."""
    made: T = _CONVERTER.structure(record, kind)
    return made


_COMPACT = json.JSONEncoder(sort_keys=True, separators=(",", ":"))

COMPOSED = (Study, Trial, OpenWindow, Observation)
"""Parts whose text is put together from the texts of their fields."""

KEPT = frozenset(
    {
        StudyPlan,
        Incumbent,
        Trial,
        Step,
        OpenWindow,
        Sample,
        Increment,
        Level,
        Configuration,
        Proposal,
        Counts,
        Clearance,
    }
)
"""Parts whose text is remembered."""


class Written(Mapping[str, Any]):
    """A record that is JSON text already; it is read when somebody looks into it, which hardly anybody does."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(self.text)
        return values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class _Memory(Generic[T]):
    """What is known of each part that is alive, by identity: parts hold mappings, so they cannot be keys themselves."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[object], T]] = {}

    def get(self, part: object) -> T | None:
        found = self._kept.get(id(part))
        return found[1] if found is not None and found[0]() is part else None

    def keep(self, part: object, known: T) -> None:
        key = id(part)
        self._kept[key] = (weakref.ref(part, lambda gone: self._drop(key, gone)), known)

    def _drop(self, key: int, gone: weakref.ref[object]) -> None:
        found = self._kept.get(key)
        if found is not None and found[0] is gone:
            self._kept.pop(key, None)


_TEXTS = _Memory[str]()


def study_text(study: Study) -> str:
    """Return a study as compact JSON with sorted keys: what is stored, and what its digest is made of."""
    return _part_text(study)


def trial_text(trial: Trial) -> str:
    """Return a trial as it stands in its study's text."""
    return _part_text(trial)


def head_text(study: Study) -> str:
    """Return a study's text as if its newest trial had no open window."""
    return _part_text(_without_window(study))


def window_text(study: Study) -> str | None:
    """Return the text of the open window of a study's newest trial, if it has one."""
    window = study.trials[-1].window if study.trials else None
    return None if window is None else _part_text(window)


def only_looked(before: Study, after: Study) -> bool:
    """Say whether `after` is `before` with another window open in its newest trial, and nothing else."""
    if not after.trials or _beside_trials(before) != _beside_trials(after):
        return False
    if len(before.trials) != len(after.trials) or before.trials[:-1] != after.trials[:-1]:
        return False
    old, new = before.trials[-1], after.trials[-1]
    return new.window is not None and _beside_window(old) == _beside_window(new)


_beside_trials = attrgetter(*(each.name for each in fields(Study) if each.name != "trials"))
_beside_window = attrgetter(*(each.name for each in fields(Trial) if each.name != "window"))


def _without_window(study: Study) -> Study:
    if not study.trials or study.trials[-1].window is None:
        return study
    return replace(study, trials=(*study.trials[:-1], replace(study.trials[-1], window=None)))


def _part_text(part: object) -> str:
    kind = type(part)
    kept = _TEXTS.get(part) if kind in KEPT else None
    if kept is not None:
        return kept
    text = _new_text(part)
    if kind in KEPT:
        _TEXTS.keep(part, text)
    return text


def _new_text(part: object) -> str:
    if isinstance(part, COMPOSED):
        return _composed(part)
    return _sample_text(part) if isinstance(part, Sample) else _compact(part)


def _composed(part: Any) -> str:
    return "{" + ",".join(_entries(part, SORTED_FIELDS[type(part)])) + "}"


def _entries(part: Any, names: Iterable[str]) -> list[str]:
    held = [(name, getattr(part, name)) for name in names]
    return [
        f'"{name}":{_field_text(value)}' for name, value in held if value is not None or name not in SILENT
    ]


SILENT = frozenset({"canary_since", "proposed_to", "provenances", "told"})
"""Fields that came later: without a value they are left out, so that records stay what they were."""


SORTED_FIELDS = {kind: tuple(sorted(each.name for each in fields(kind))) for kind in COMPOSED}


def _field_text(value: object) -> str:
    """Return a field's text; what is most common is written without asking the converter."""
    kind = type(value)
    if value is None:
        return "null"
    if kind in KEPT:
        return _part_text(value)
    if isinstance(value, str):
        return _quoted(str(value))
    if kind is int or (kind is float and isfinite(value)):  # type: ignore[arg-type]
        return repr(value)
    if isinstance(value, datetime):
        return f'"{value.isoformat()}"'
    if isinstance(value, tuple) and value and type(value[0]) in KEPT:
        return "[" + ",".join(map(_part_text, value)) + "]"
    if isinstance(value, dict | tuple) and not value:
        return "{}" if kind is dict else "[]"
    return _plain_text(value) if kind is dict else _compact(value)


def _compact(value: object) -> str:
    return _COMPACT.encode(to_record(value))


# -- looks: read from many replicas every second, and written as often


def _sample_text(sample: Sample) -> str:
    at, edges = sample.at.isoformat(), _edges_text(sample.edges_seconds)
    gateway, servers = _plain_text(sample.gateway), _plain_text(sample.servers)
    faults = _plain_text(sample.faults)
    return (
        f'{{"at":"{at}","edges_seconds":{edges},"faults":{faults},"gateway":{gateway},"servers":{servers}}}'
    )


@lru_cache(maxsize=256)
def _edges_text(edges_seconds: tuple[float, ...]) -> str:
    return _COMPACT.encode(to_record(edges_seconds, tuple[float, ...]))


def _plain_text(values: object) -> str:
    """Return a mapping of plain values or of counters as text; the converter is asked for what else there may be."""
    try:
        return _PLAIN.encode(values)
    except (TypeError, ValueError):
        return _compact(values)


COUNTERS = (GatewayCounters, ServerCounters, BatchTiming)
DECIMAL_FIELDS: Mapping[type, tuple[str, ...]] = {
    kind: tuple(each.name for each in fields(kind) if str(each.type).startswith("float")) for kind in COUNTERS
}


SILENT_OF_COUNTERS = ("counted_by", "model_versions")
"""The same of counters: left out while they say nothing."""


def _counters(part: object) -> dict[str, Any]:
    """Return the fields of counters. Raises TypeError for anything else."""
    names = DECIMAL_FIELDS.get(type(part))
    if names is None:
        raise TypeError(f"{type(part).__name__} is no plain value")
    values = dict(vars(part))
    for name in names:
        if type(values[name]) is int:  # a whole number of seconds stays what its field is
            values[name] = float(values[name])
    for name in SILENT_OF_COUNTERS:
        if name in values and not values[name]:
            del values[name]
    return values


_PLAIN = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, default=_counters)


def observed_record(seen: Observation) -> Written:
    """Return an observation as a record: what `to_record` gives, with sorted names."""
    return Written(_part_text(seen))


def digest(study: Study) -> str:
    """Return a digest of a study: equal digests mean equal records."""
    return hashlib.sha256(study_text(study).encode()).hexdigest()


def digest_after(before: Study, after: Study) -> str:
    """Return the digest of `after`; where it only looked on from `before`, no more than its window is read."""
    if not only_looked(before, after):
        return digest(after)
    frame = _FRAMES.get(before) or _framed(after)
    _FRAMES.keep(after, frame)
    begun = frame.begun.copy()
    begun.update(f"{window_text(after)}{frame.rest}".encode())
    told: str = begun.hexdigest()
    return told


@dataclass(frozen=True)
class _Frame:
    """A study's text around the open window of its newest trial. begun: the digest of what comes before it."""

    begun: Any
    rest: str


_FRAMES = _Memory[_Frame]()

LAST_OF_TRIAL = "window"
AFTER_TRIALS = SORTED_FIELDS[Study][SORTED_FIELDS[Study].index("trials") + 1 :]


def _framed(study: Study) -> _Frame:
    """Return the frame of a study with an open window, which is the last field of its last trial."""
    assert SORTED_FIELDS[Trial][-1] == LAST_OF_TRIAL
    behind = "".join(f",{entry}" for entry in _entries(study, AFTER_TRIALS))
    rest = f"}}]{behind}}}"
    length = len(window_text(study) or "") + len(rest)
    return _Frame(hashlib.sha256(study_text(study)[:-length].encode()), rest)
