"""The proposer's page: its plots exist and can be shown, and its generated part is replaced and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from autotuner.batching.trials import Setting
from autotuner.report.curves import Chart, Ring, Series, Shape, drawn
from autotuner.report.svg import standalone
from scripts.proposer_page import (
    BEGIN,
    END,
    IMAGES,
    PAGE,
    SIZE,
    STYLE,
    Study,
    Truth,
    border,
    ended,
    table,
    updated,
)

SVG = "{http://www.w3.org/2000/svg}"


def test_every_plot_of_the_page_exists_and_no_other_does() -> None:
    shown = re.findall(r"\]\(images/([\w-]+\.svg)\)", PAGE.read_text("utf-8"))

    assert sorted(shown) == sorted(path.name for path in IMAGES.glob("proposer-*.svg"))
    assert {"proposer-curve.svg", "proposer-agreement.svg", "proposer-frontier-1.svg"} <= set(shown)
    assert len([name for name in shown if "frontier" in name]) >= 2


def test_the_page_shows_the_study_that_the_proposer_makes_today() -> None:
    study = Study()
    generated = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0].splitlines()

    told = [line for line in generated if line.startswith(("| ", "|-", "Kept: "))]

    assert [*table(study), ended(study)] == told, "run `make docs`"


@pytest.mark.parametrize("path", sorted(IMAGES.glob("*.svg")), ids=lambda path: path.stem)
def test_a_plot_is_a_whole_picture_with_a_title_and_both_colour_schemes(path: Path) -> None:
    root = ET.fromstring(path.read_text("utf-8"))

    assert root.tag == f"{SVG}svg"
    assert root.findtext(f"{SVG}title")
    assert "prefers-color-scheme: dark" in (root.findtext(f"{SVG}style") or "")
    assert root.findall(f".//{SVG}polyline")


def test_only_the_generated_part_changes_and_a_lost_marker_is_an_error() -> None:
    text = PAGE.read_text("utf-8")

    changed = updated(text, "new")

    assert f"{BEGIN}\nnew\n{END}" in changed
    assert changed.replace("new", "", 1).split(BEGIN)[0] == text.split(BEGIN)[0]
    assert changed.split(END)[1] == text.split(END)[1]
    with pytest.raises(ValueError, match="markers"):
        updated(text.replace(END, ""), "new")


def test_the_border_keeps_what_nothing_beats_in_both() -> None:
    setting = [Setting(0.001 * number, (), 1, 8) for number in range(4)]
    truths = {
        setting[0]: Truth(0.020, 0.004),
        setting[1]: Truth(0.030, 0.003),
        setting[2]: Truth(0.040, 0.0035),
        setting[3]: Truth(0.050, 0.002),
    }

    assert border(truths) == [setting[3], setting[1], setting[0]]


def test_a_chart_draws_lines_dots_bands_rings_and_the_ceiling() -> None:
    points = ((1.0, 2.0), (2.0, 4.0), (3.0, 8.0))
    chart = Chart(
        "one",
        "A <title>",
        "what it shows",
        "x",
        "y",
        (
            Series("winner", "line", points),
            Series("other", "dots", points, Shape.DOTS),
            Series("winner", "band", (*points, (3.0, 6.0), (1.0, 1.0)), Shape.BAND),
        ),
        (Ring("winner", (2.0, 4.0), "here"),),
        ceiling=5.0,
        ceiling_words="at most 5",
    )

    root = ET.fromstring(standalone(drawn(chart, SIZE), STYLE))

    classes = [element.get("class") for element in root.iter()]
    assert root.findtext(f"{SVG}title") == "A <title>"
    assert classes.count("dot dot-other") == 3
    assert classes.count("ramp ramp-winner") == 1
    assert classes.count("band band-winner") == 1
    assert classes.count("ring ramp-winner") == 1
    assert "ceiling" in classes
    assert {"at most 5", "here"} <= {element.text for element in root.iter(f"{SVG}text")}


def test_a_square_chart_draws_equal_values_on_its_diagonal() -> None:
    chart = Chart("one", "t", "d", "x", "y", (Series("winner", "l", ((1.0, 1.0), (3.0, 3.0))),), square=True)

    root = ET.fromstring(standalone(drawn(chart, SIZE), STYLE))

    (line,) = root.iter(f"{SVG}polyline")
    shares = [
        (
            (float(x) - SIZE.left) / (SIZE.width - SIZE.right - SIZE.left),
            (SIZE.height - SIZE.bottom - float(y)) / (SIZE.height - SIZE.bottom - SIZE.top),
        )
        for x, y in (pair.split(",") for pair in (line.get("points") or "").split())
    ]
    assert all(across == pytest.approx(up, abs=0.002) for across, up in shares)


def test_charts_with_the_same_vertical_ends_can_be_compared() -> None:
    low, high = (
        Chart(
            "one", "t", "d", "x", "y", (Series("winner", "l", ((1.0, 5.0), (2.0, y))),), vertical=(0.0, 100.0)
        )
        for y in (10.0, 90.0)
    )

    starts = []
    for chart in (low, high):
        (line,) = ET.fromstring(standalone(drawn(chart, SIZE), STYLE)).iter(f"{SVG}polyline")
        starts.append((line.get("points") or "").split()[0])

    assert starts[0] == starts[1]
