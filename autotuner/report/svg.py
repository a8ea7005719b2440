"""The few SVG shapes and scales that the report's charts are drawn with.

Colours are classes, never values: the page's style sheet gives them one value in light and one in dark. Markup is
made by `Markup`'s `%` alone, which escapes whatever is put into it, in a third of the time of its `format`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from autotuner.domain.judgement import Verdict

SHAPES: dict[Verdict, Markup] = {
    Verdict.ACCEPT: Markup('<circle class="%(css)s" cx="%(x).1f" cy="%(y).1f" r="%(r).1f"/>'),
    Verdict.REJECT: Markup(
        '<path class="%(css)s" d="M%(left).1f %(top).1f L%(right).1f %(bottom).1f M%(right).1f %(top).1f '
        'L%(left).1f %(bottom).1f"/>'
    ),
    Verdict.INCONCLUSIVE: Markup(
        '<path class="%(css)s" d="M%(x).1f %(top).1f L%(right).1f %(bottom).1f L%(left).1f %(bottom).1f Z"/>'
    ),
    Verdict.VOID: Markup(
        '<rect class="%(css)s" x="%(left).1f" y="%(top).1f" width="%(d).1f" height="%(d).1f"/>'
    ),
}
"""A shape for each verdict, so that none depends on its colour: disc, cross, triangle, hollow square."""


def mark(verdict: Verdict, x: float, y: float, radius: float) -> Markup:
    """Return the shape of a verdict around the point (x, y)."""
    box = {"left": x - radius, "right": x + radius, "top": y - radius, "bottom": y + radius}
    return SHAPES[verdict] % {
        **box,
        "css": f"mark mark-{verdict}",
        "x": x,
        "y": y,
        "r": radius,
        "d": 2 * radius,
    }


def icon(verdict: Verdict) -> Markup:
    """Return the shape of a verdict as a small picture beside its name."""
    return Markup('<svg class="icon" viewBox="0 0 16 16" aria-hidden="true">%s</svg>') % (
        mark(verdict, 8.0, 8.0, 5.0)
    )


WIDEST_LETTER = 8.0
"""Pixels that a letter of the charts' text takes at most, in the mean over a label."""


def text(
    x: float, y: float, words: str, css: str = "", anchor: str = "start", at_most: float = math.inf
) -> Markup:
    """Return words at a place; anchor is `start`, `middle` or `end`; squeezed where they might exceed `at_most`."""
    squeeze = Markup("")
    if len(words) * WIDEST_LETTER > at_most:
        squeeze = Markup(' textLength="%.0f" lengthAdjust="spacingAndGlyphs"') % at_most
    return Markup('<text x="%.1f" y="%.1f" class="%s" text-anchor="%s"%s>%s</text>') % (
        x,
        y,
        css,
        anchor,
        squeeze,
        words,
    )


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> Markup:
    """Return a straight line."""
    return Markup('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>') % (x1, y1, x2, y2, css)


def rectangle(x: float, y: float, width: float, height: float, css: str) -> Markup:
    """Return a filled rectangle; a negative extent is drawn as none."""
    return Markup('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" class="%s"/>') % (
        x,
        y,
        max(0.0, width),
        max(0.0, height),
        css,
    )


def polyline(points: Iterable[tuple[float, float]], css: str) -> Markup:
    """Return a line through `points` in pixels."""
    return Markup('<polyline points="%s" class="%s"/>') % (
        " ".join(f"{x:.1f},{y:.1f}" for x, y in points),
        css,
    )


def polygon(points: Iterable[tuple[float, float]], css: str) -> Markup:
    """Return the area within `points` in pixels."""
    return Markup('<polygon points="%s" class="%s"/>') % (
        " ".join(f"{x:.1f},{y:.1f}" for x, y in points),
        css,
    )


def circle(x: float, y: float, radius: float, css: str) -> Markup:
    """Return a circle around the point (x, y)."""
    return Markup('<circle cx="%.1f" cy="%.1f" r="%.1f" class="%s"/>') % (x, y, radius, css)


def titled(title: str, content: Markup) -> Markup:
    """Return `content` as a group whose title a pointer shows."""
    return Markup("<g><title>%s</title>%s</g>") % (title, content)


def link(address: str, name: str, content: Markup) -> Markup:
    """Return `content` as a link that a keyboard reaches; name: what it opens."""
    return Markup('<a class="point" href="%s" aria-label="%s">%s</a>') % (address, name, content)


def document(name: str, width: float, height: float, title: str, description: str, body: Markup) -> Markup:
    """Return a whole picture with an accessible name and description; `name` is unique on the page."""
    return Markup(
        '<svg class="chart" viewBox="0 0 %.0f %.0f" role="img" aria-labelledby="%s-t" aria-describedby="%s-d">'
        '<title id="%s-t">%s</title><desc id="%s-d">%s</desc>%s</svg>'
    ) % (width, height, name, name, name, title, name, description, body)


def with_links(picture: Markup) -> Markup:
    """Return a picture of `document` as a group: what is in an image is hidden from who cannot see it, links too."""
    return Markup(str(picture).replace('role="img"', 'role="group"', 1))  # noqa: S704 - our own picture


def standalone(picture: Markup, style: str) -> str:
    """Return a picture of `document` as a file of its own; style: what its classes look like."""
    opening, rest = str(picture).split(">", 1)
    return f'{opening} xmlns="http://www.w3.org/2000/svg"><style>{style}</style>{rest}'


def joined(parts: Iterable[Markup]) -> Markup:
    """Return all parts one after the other."""
    return Markup("").join(parts)


@dataclass(frozen=True)
class Scale:
    """Where a value lies between two pixels. Logarithmic needs low > 0."""

    low: float
    high: float
    first_pixel: float
    last_pixel: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Return the pixel of `value`, held within the scale."""
        held = min(max(value, self.low), self.high)
        if self.logarithmic:
            share = math.log(held / self.low) / math.log(self.high / self.low)
        else:
            share = (held - self.low) / (self.high - self.low)
        return self.first_pixel + share * (self.last_pixel - self.first_pixel)

    def ticks(self, about: int) -> list[float]:
        """Return about as many round values on the scale as asked for."""
        if self.logarithmic:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for steps in ((1,), (1, 2, 5), (1, 2, 3, 5, 7)):
                found = [m * 10.0**d for d in decades for m in steps if self.low <= m * 10.0**d <= self.high]
                if len(found) >= min(4, about):
                    return found
        return linear_ticks(self.low, self.high, about)


def linear_ticks(low: float, high: float, about: int) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten between `low` and `high`."""
    step = _round_step((high - low) / max(1, about))
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _round_step(raw: float) -> float:
    power = 10.0 ** math.floor(math.log10(raw))
    return power * next(m for m in (1, 2, 5, 10) if raw <= m * power * (1 + 1e-9))


LEAST_SPREAD = 0.35
"""A scale begins at zero when its values differ by a smaller share than this: noise is not to look like a slope."""


def around(
    values: Iterable[float], first_pixel: float, last_pixel: float, *, from_zero: bool = False
) -> Scale:
    """Return a linear scale that holds `values` with some air around them; `values` must not be empty."""
    known = list(values)
    low, high = min(known), max(known)
    if high - low < LEAST_SPREAD * high:
        from_zero = True
    air = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    bottom = 0.0 if from_zero else max(0.0, low - air)
    return Scale(bottom, high + air, first_pixel, last_pixel)


def around_logarithmic(values: Iterable[float], first_pixel: float, last_pixel: float) -> Scale:
    """Return a logarithmic scale that holds the positive `values` with some air; there must be one."""
    known = [value for value in values if value > 0]
    return Scale(min(known) / 1.7, max(known) * 1.3, first_pixel, last_pixel, logarithmic=True)
