"""Inference statistics by batch size, read from every server: no metrics server has them, whoever counts the rest."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from autotuner.adapters.scrape.reading import Answer, read_all
from autotuner.domain.target import Replica, Target
from autotuner.instruments import triton
from autotuner.instruments.readings import Unreadable


class ScrapedStatistics:
    """What each server tells of the model, from Triton's own API."""

    def __init__(self, target: Target, deadline: timedelta) -> None:
        self._target = target
        self._deadline = deadline

    def __call__(self) -> tuple[Mapping[str, triton.Statistics], Mapping[str, str]]:
        """Return statistics by replica, and why those of the others could not be read; never raises."""
        urls = {
            replica.name: statistics_url(replica, self._target.model) for replica in self._target.replicas
        }
        answers = read_all(list(urls.values()), self._deadline)
        told, faults = {}, {}
        for name, url in urls.items():
            try:
                told[name] = read_statistics(answers[url], url)
            except Unreadable as reason:
                faults[name] = str(reason)
        return told, faults


def statistics_url(replica: Replica, model: str) -> str:
    """Return where a server tells the statistics of a model."""
    return replica.http_url.rstrip("/") + triton.statistics_path(model)


def read_statistics(answer: Answer, url: str) -> triton.Statistics:
    """Return the statistics in an answer. Raises Unreadable, saying where."""
    try:
        return triton.read_statistics(answer.read())
    except Unreadable as reason:
        raise Unreadable(f"the server's statistics ({url}): {reason}") from reason
