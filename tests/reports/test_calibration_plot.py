"""The calibration curve on the card: it ends where the data end."""

import pytest

from tacit.accounting import Ledger, account
from tacit.mechanisms import Gaussian
from tacit.reports import Card
from tacit.reports.card import page
from tacit.reports.plots import draw_calibration

ROWS = [
    {"start": 0.0, "end": 0.1, "predicted": 0.05, "share": 0.1, "low": 0.02, "high": 0.3, "rows": 40},
    {"start": 0.1, "end": 0.2, "predicted": 0.16, "share": 0.2, "low": 0.1, "high": 0.4, "rows": 30},
    {"start": 0.7, "end": 0.8, "predicted": 0.75, "share": 0.6, "low": 0.3, "high": 0.9, "rows": 9},
]


def card(**more):
    ledger = Ledger.of(Gaussian(2.0).poisson(0.01) * 50)
    return Card(
        dataset="mine",
        model="linear",
        method="DP-SGD",
        records=900,
        metrics={"test": 0.9},
        account=account(ledger, delta=1e-5),
        ledger=ledger,
        wall_seconds=1.0,
        **more,
    )


@pytest.mark.slow
def test_the_page_has_the_curve_its_table_and_its_reservation():
    text = " ".join(page(card(calibration=ROWS)).split())
    assert "Share of the second class against its predicted chance" in text
    assert "The guarantee does not cover these shares" in text
    assert "70.0 % to 80.0 %" in text


@pytest.mark.slow
def test_a_card_without_two_classes_draws_no_curve():
    assert "Share of the second class" not in page(card())


def test_points_are_joined_between_neighbouring_bins_only_and_nothing_is_drawn_without_records():
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    draw_calibration(axes, ROWS)
    lines = [line.get_xydata().tolist() for line in axes.lines if line.get_linestyle() == "-"]
    assert lines == [[[0.0, 0.0], [1.0, 1.0]], [[0.05, 0.1], [0.16, 0.2]]]
    boxes = [band.get_paths()[0].get_extents() for band in axes.collections]
    assert [(box.x0, box.x1, box.y0, box.y1) for box in boxes] == [
        (row["start"], row["end"], row["low"], row["high"]) for row in ROWS
    ]
