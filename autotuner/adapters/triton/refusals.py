"""Triton's refusals in words that say what to do: its own are a log line, a Python traceback or hardly anything."""

from __future__ import annotations

import re

LONGEST_QUOTE_CHARACTERS = 300

PREAMBLE = re.compile(r"^load failed for model '[^']*': (?:version \d+ is at \w+ state: )?")
TRACEBACK = re.compile(r"\s*\n\s*At:.*", re.DOTALL)

ADVICE = (
    (
        re.compile(r"failed to poll from model repository"),
        "a field or value is not valid here (such as a preferred size above max_batch_size); the server's log names it",
    ),
    (
        re.compile(
            r"out of memory|not enough \w*\s?memory|cudaErrorMemoryAllocation|bad_alloc", re.IGNORECASE
        ),
        "the device has not enough memory while old and new version are both loaded; try fewer instances",
    ),
    (
        re.compile(r"no GPUs are available|invalid device ordinal", re.IGNORECASE),
        "the instance group asks for a GPU that this server does not have",
    ),
    (
        re.compile(
            r"explicit model load / unload is not allowed|model control mode is not EXPLICIT", re.IGNORECASE
        ),
        "start tritonserver with --model-control-mode=explicit",
    ),
    (
        re.compile(r"unknown model|no model version|is not found", re.IGNORECASE),
        "check the model's name and that it is loaded",
    ),
)


def explain(message: str) -> str:
    """Return what Triton said, without its preamble and traceback, and what to do about it where that is known."""
    said = TRACEBACK.sub("", PREAMBLE.sub("", message.strip()))
    said = " ".join(said.split()).strip(" ;")
    if len(said) > LONGEST_QUOTE_CHARACTERS:
        said = said[: LONGEST_QUOTE_CHARACTERS - 1] + "…"
    for pattern, advice in ADVICE:
        if pattern.search(message):
            return f"{said}: {advice}"
    return said or "no reason given; see the server's log"
