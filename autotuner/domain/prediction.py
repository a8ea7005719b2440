"""Configurations in the words of the grey-box model, and back."""

from __future__ import annotations

from autotuner.batching.trials import Setting
from autotuner.domain.configuration import Configuration


def setting_of(configuration: Configuration) -> Setting:
    """Return a configuration in the model's words."""
    return Setting(
        configuration.queue_delay_seconds,
        configuration.preferred_batch_size,
        configuration.instance_count,
        configuration.max_batch_size,
    )


def configuration_of(setting: Setting) -> Configuration:
    """Return the configuration that a setting of the model stands for; its delay in whole microseconds."""
    return Configuration(
        round(setting.delay_seconds * 1e6), setting.preferred, setting.instances, setting.max_batch_size
    )
