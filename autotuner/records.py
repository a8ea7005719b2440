"""Records as plain JSON values and back, exactly: what is stored can be computed again to the last digit.

cattrs does the walking; only what JSON cannot say is decided here. Instants are RFC 3339 text, durations are
seconds, an unbounded number is the text `inf`, and a member of a union carries its class name in `type`.
"""

from __future__ import annotations

import hashlib
import json
import math
from datetime import datetime, timedelta
from typing import Any, TypeVar

from cattrs import Converter
from cattrs.strategies import configure_tagged_union

from autotuner.domain.study import Action, Study

T = TypeVar("T")


def _converter() -> Converter:
    made = Converter(forbid_extra_keys=False)
    made.register_unstructure_hook(datetime, lambda value: value.isoformat())
    made.register_structure_hook(datetime, lambda value, _: datetime.fromisoformat(value))
    made.register_unstructure_hook(timedelta, lambda value: value.total_seconds())
    made.register_structure_hook(timedelta, lambda value, _: timedelta(seconds=value))
    made.register_unstructure_hook(float, lambda value: float(value) if math.isfinite(value) else str(value))
    configure_tagged_union(Action, made, tag_name="type")
    return made


_CONVERTER = _converter()


def to_record(value: object, as_type: Any = None) -> Any:
    """Return `value` as JSON-ready data. Pass `as_type` for a member of a union (an `Action`)."""
    return _CONVERTER.unstructure(value, as_type if as_type is not None else type(value))


def from_record(kind: type[T] | Any, record: Any) -> T:
    """Return the value of type `kind` that `to_record` made `record` from. Raises cattrs errors for other data."""
    made: T = _CONVERTER.structure(record, kind)
    return made


def digest(study: Study) -> str:
    """Return a digest of a study: equal digests mean equal records."""
    text = json.dumps(to_record(study), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
