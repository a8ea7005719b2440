"""Raw samples put back into the scrapes they came from: who was scraped, when, what is missing, and what began anew.

A scrape gives all its series the same time. Whoever has two sets of series at once was scraped twice, and what a
scrape lacks that the one before had is not there yet. Pure: samples in, scrapes out.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from autotuner.adapters.prometheus.native import as_classic, edges_of, read_native
from autotuner.instruments.gateways import NativeFamily
from autotuner.instruments.readings import Labelled, Readings, Unreadable

MISSED = 1.5
"""Scrapes further apart than this many intervals have others missing between them."""

FEWEST_SCRAPES = 3
"""Scrapes from which an interval is learnt."""

LATEST_SECOND = 253_402_300_800.0
"""The first second of the year 10000: no calendar goes further."""

Series = tuple[Mapping[str, str], Sequence[tuple[float, float]]]
"""Labels, `__name__` among them, and (server time in seconds, value) in order."""


def series_in(result: Any, native: NativeFamily | None = None, *, pulse_only: bool = False) -> list[Series]:
    """Return the series in the answer to a query for raw samples. Raises Unreadable.

    native: the histogram that is read where it is a native one, as the series that a classic one would have;
    pulse_only: only how many it counted. A native histogram beside classic buckets is passed over: those may have an
    edge at the ceiling.
    """
    try:
        found = [(dict(each["metric"]), _numbers(each.get("values", ()))) for each in result]
        told = [(dict(each["metric"]), each["histograms"]) for each in result if each.get("histograms")]
        classic = {labels.get("__name__", "").removesuffix("_bucket") for labels, values in found if values}
        alone = [each for each in told if each[0].get("__name__", "") not in classic]
        return [
            *((labels, values) for labels, values in found if values),
            *_from_native(alone, native, pulse_only),
        ]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Unreadable("samples in an unknown form") from error


def _from_native(
    told: list[tuple[dict[str, str], Any]], native: NativeFamily | None, pulse_only: bool
) -> Iterator[Series]:
    """The series of native histograms. Raises Unreadable for one that cannot be read."""
    for labels, _ in told:
        if native is None or labels.get("__name__") != native.name:
            raise Unreadable(
                f"{labels.get('__name__', '')} is a native histogram alone, whose edges are not those that "
                "this gateway counts by: let Prometheus keep its classic buckets too"
            )
    read = [(labels, [(second_of(at), read_native(each)) for at, each in given]) for labels, given in told]
    edges: tuple[float, ...] = ()
    if native is not None and not pulse_only:
        edges = edges_of([sample for _, samples in read for _, sample in samples], native.unit_seconds)
    for labels, samples in read:
        yield from as_classic(labels, samples, edges)


def _numbers(values: Iterable[Any]) -> list[tuple[float, float]]:
    """Times and values. No number is no sample: VictoriaMetrics tells so that a series had ended."""
    told = ((second_of(at), float(value)) for at, value in values)
    return [(at, value) for at, value in told if not math.isnan(value)]


def second_of(at: Any) -> float:
    """Return a server's time. Raises ValueError, TypeError, OverflowError for what is no time of a calendar."""
    second = float(at)
    if not 0.0 <= second < LATEST_SECOND:
        raise ValueError(f"no time: {second:g}")
    return second


@dataclass(frozen=True)
class Source:
    """One scraped pod or address: its own labels and its series."""

    name: str
    labels: Mapping[str, str]
    series: tuple[Series, ...]

    @cached_property
    def times(self) -> tuple[float, ...]:
        """When it was scraped, in order. A newest scrape that lacks series of the one before is not all there yet."""
        at = sorted(self._present)
        if len(at) > 1 and not self._present[at[-1]] >= self._present[at[-2]]:
            at.pop()
        return tuple(at)

    @cached_property
    def _present(self) -> Mapping[float, frozenset[int]]:
        found: defaultdict[float, set[int]] = defaultdict(set)
        for number, (_, values) in enumerate(self.series):
            for at, _ in values:
                found[at].add(number)
        return {at: frozenset(numbers) for at, numbers in found.items()}

    def scrape(self, at: float) -> Readings:
        """Return what was scraped at one of `times`."""
        samples: defaultdict[str, list[Labelled]] = defaultdict(list)
        for number in self._present[at]:
            labels, values = self.series[number]
            value = next(value for when, value in values if when == at)
            samples[labels.get("__name__", "")].append((labels, value))
        return Readings(samples)

    def interval_seconds(self) -> float | None:
        """Return the usual time between two scrapes; None when there are too few."""
        if len(self.times) < FEWEST_SCRAPES:
            return None
        return statistics.median_low(self._between())

    def even(self) -> bool:
        """Whether no scrape is missing between the oldest and the newest."""
        between = self._between()
        return max(between, default=0.0) <= MISSED * min(between, default=0.0)

    def _between(self) -> list[float]:
        return [later - earlier for earlier, later in itertools.pairwise(self.times)]

    def gap_seconds(self) -> float:
        """Return the longest time between two scrapes."""
        return max(self._between(), default=0.0)


def scraped_in(series: Iterable[Series], own_labels: Collection[str]) -> list[Source]:
    """Return who was scraped, one for each set of labels. own_labels: labels that tell nothing of that."""
    grouped: defaultdict[tuple[tuple[str, str], ...], list[Series]] = defaultdict(list)
    for labels, values in series:
        who = tuple(sorted((name, value) for name, value in labels.items() if name not in own_labels))
        grouped[who].append((labels, values))
    return [Source(_name(dict(who)), dict(who), tuple(theirs)) for who, theirs in sorted(grouped.items())]


def sources_in(series: Iterable[Series], own_labels: Collection[str]) -> list[Source]:
    """Return who was scraped, by name. Raises Unreadable for doubles.

    A pod, or an address where no pod is told, that comes with two sets of labels is scraped twice: its counts would
    be added up, so neither is believed.
    """
    found: dict[str, Source] = {}
    for source in scraped_in(series, own_labels):
        if source.name in found:
            raise Unreadable(_doubled(found[source.name], source))
        found[source.name] = source
    return list(found.values())


def _name(labels: Mapping[str, str]) -> str:
    pod = labels.get("pod", "")
    return f"{labels.get('namespace', '')}/{pod}" if pod else labels.get("instance", "")


def _doubled(one: Source, other: Source) -> str:
    names = sorted({*one.labels, *other.labels})
    differing = [name for name in names if one.labels.get(name) != other.labels.get(name)]
    told = " and ".join(
        "{" + ", ".join(f'{name}="{each.labels.get(name, "")}"' for name in differing) + "}"
        for each in (one, other)
    )
    return f"two series for {one.name or 'one source'}, {told}: pick one with metrics.labels"


def newest_of(series: Iterable[Series]) -> Readings:
    """Return the newest value of each series; one that two queries gave is there once."""
    found = {tuple(sorted(labels.items())): (labels, values[-1][1]) for labels, values in series if values}
    samples: defaultdict[str, list[Labelled]] = defaultdict(list)
    for labels, value in found.values():
        samples[labels.get("__name__", "")].append((labels, value))
    return Readings(samples)
