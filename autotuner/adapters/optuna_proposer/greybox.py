# ruff: noqa: ARG002 - the arguments are Optuna's interface
"""Our own Optuna sampler: it knows Triton's batcher, predicts every candidate and suggests the best safe one.

The model is `autotuner.batching`; here a study's records are put into its words, and its advice into Optuna's.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import optuna
from optuna.distributions import BaseDistribution

from autotuner.adapters.optuna_proposer.axes import Axes
from autotuner.adapters.optuna_proposer.evidence import history_of, problem_of
from autotuner.batching import advisor
from autotuner.batching.trials import Advice
from autotuner.domain.configuration import Configuration
from autotuner.domain.hindsight import RATE
from autotuner.domain.prediction import setting_of
from autotuner.domain.space import Examination
from autotuner.domain.study import Study
from autotuner.errors import InvalidInput, Refused


class GreyBoxSampler(optuna.samplers.BaseSampler):
    """Suggests what the model of the batcher advises for one study as it stands.

    A pure function of its three arguments: what Optuna was told of the trials is not looked at, for the records say
    more. examination: what `space.examine` says of the study; nothing but its admissible candidates is suggested.
    """

    def __init__(self, study: Study, examination: Examination, seed: int) -> None:
        self._study = study
        self._examination = examination
        self._problem = problem_of(study, examination, seed)

    @cached_property
    def advice(self) -> Advice:
        """What the model advises and why; its setting is None where nothing safe promises enough."""
        return advisor.advise(self._problem, history_of(self._study))

    @cached_property
    def predicted(self) -> dict[str, float]:
        """The figures behind the advice, with the rate per replica that they are for."""
        return {**self.advice.predicted, RATE: round(self.limit or self._problem.rates[0], 3)}

    @property
    def limit(self) -> float | None:
        """The rate per replica that the trial is limited to, None where that is not below production's.

        Above production's load the ramp's own test ends a level after a dozen slow requests, and a capacity that was
        not looked for could not be chosen.
        """
        today = self._problem.rates[0]
        return self.advice.highest_rate if self.advice.highest_rate < today else None

    @cached_property
    def configuration(self) -> Configuration | None:
        """The advised candidate; None where there is none that is admissible: tried ones are not."""
        wanted = self.advice.setting
        return next((c for c in self._examination.admissible if setting_of(c) == wanted), None)

    def infer_relative_search_space(
        self,
        study: optuna.Study,
        trial: optuna.trial.FrozenTrial,
    ) -> dict[str, BaseDistribution]:
        """Return all three axes: they are suggested together."""
        return Axes.of(self._examination.space).distributions()

    def sample_relative(
        self,
        study: optuna.Study,
        trial: optuna.trial.FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        """Return the advised candidate's point. Raises Refused with the advice's reason where there is none."""
        if self.configuration is None:
            raise Refused(self.advice.reason)
        return dict(Axes.of(self._examination.space).point(self.configuration))

    def sample_independent(
        self,
        study: optuna.Study,
        trial: optuna.trial.FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Raise InvalidInput: there is no parameter beside the space's axes."""
        raise InvalidInput(
            "parameter", param_name, ", ".join(Axes.of(self._examination.space).distributions())
        )
