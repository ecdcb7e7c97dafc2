"""Cards of the studies in report_studies.py, written once a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from report_studies import Made, with_measurements

from reports import Card, load_card, render_html


@pytest.fixture
def card_of(tmp_path: Path) -> Callable[[Made], Card]:
    """Write a study folder and load its card."""

    def build(made: Made) -> Card:
        return load_card(made.write(tmp_path / made.study["name"]))

    return build


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Card:
    """The full study: two data entries, three models, two controls, G1b."""
    made = with_measurements(Made(), {"W1.g1b.top1": 0.605, "dinov2.g1b.top1": 0.646, "W1.g1b.mrr": 0.7})
    return load_card(made.write(tmp_path_factory.mktemp("studies") / "lejepa"))


@pytest.fixture(scope="session")
def full_html(full: Card) -> str:
    """The full study's page, drawn once."""
    return render_html(full)
