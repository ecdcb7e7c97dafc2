"""Sentences follow the numbers: each rule is made to speak, and to stay silent."""

from __future__ import annotations

import pytest
from report_studies import Made, small, with_measurements

from bars import Measurement
from reports.comparison import compare


def test_best_and_worst_joint_with_their_intervals(full):
    line = full.findings[0]
    assert line.startswith("W1 on demos: mean R2 0.565 [0.525, 0.597], ")
    assert (
        "It recovers shoulder_lift best (0.91 [0.84, 0.96]) and wrist_flex worst (0.27 [0.20, 0.32])." in line
    )


def test_an_order_that_the_intervals_do_not_settle(card_of):
    made = small()
    made.r2["W1", "demos"] = (0.58, 0.60, 0.55)
    assert "so that this order is not settled" in card_of(made).findings[0]


@pytest.mark.parametrize(
    ("control", "said"),
    [(0.30, "above pixels (+"), (0.575, "not separated from pixels (+"), (0.75, "below pixels (-")],
)
def test_beside_a_control(card_of, control, said):
    made = small()
    made.r2["W1", "demos"] = (0.6, 0.6, 0.6)
    made.r2["pixels", "demos"] = (control,) * 3
    card = card_of(made)
    assert said in card.findings[0]
    assert any("W1 is not shown to carry more about the joints than pixels (+" in x for x in card.gap) == (
        "not separated" in said
    )
    assert any("W1 carries less about the joints than pixels (-" in x for x in card.gap) == ("below" in said)


def test_joints_on_which_a_control_does_as_well(full, card_of):
    said = "By point estimates it is matched or beaten by "
    assert f"{said}pixels on shoulder_pan and wrist_flex." in full.findings[0]
    made = small()
    made.r2["pixels", "demos"] = (0.1, 0.1, 0.1)
    assert said not in card_of(made).findings[0]


def test_training_is_credited_only_beside_the_same_network_untrained(card_of):
    made = small()
    assert any("the same network untrained" in line for line in card_of(made).gap)
    made.study["encoders"]["untrained"]["train"]["of"] = "vit"
    gap = card_of(made).gap
    assert not any("training put that there" in line for line in gap)
    assert any("W1 carries more about the joints than untrained does" in line for line in gap)


def test_unevenness_that_is_there_without_training(card_of):
    said = "The anisotropy of W1 on demos (0.610) is not shown to be above that of "
    overlap = "0.610 against 0.720, intervals overlap"
    assert any(line.startswith(f"{said}pixels ({overlap}) or that of unt") for line in card_of(small()).gap)
    made = with_measurements(small(), {"W1.anisotropy - untrained.anisotropy": 0.02})
    assert any("that of untrained (0.660; difference +0.020 [-0.010, 0.050])" in x for x in card_of(made).gap)
    made = with_measurements(small(), {"W1.anisotropy - untrained.anisotropy": -0.2})
    assert any("(0.610) is below that of untrained (0.660; difference -0.200" in x for x in card_of(made).gap)
    made = small()
    made.r2["pixels", "demos"] = made.r2["untrained", "demos"] = (0.3, 0.3, 0.3)
    assert not any("so much may be there" in line for line in card_of(made).gap)


def test_a_far_negative_r2_is_explained(card_of):
    made = small()
    made.r2["W1", "demos"] = (0.64, 0.72, -24.0)
    card = card_of(made)
    line = next(line for line in card.findings if line.startswith("R2 -24.0 of W1 for wrist_roll"))
    assert "a squared error 25.0 times the joint's own variance" in line
    assert "the mean R2 of the other joints is 0.680" in line
    assert card.joint_tables[0].row("wrist_roll").cells["W1"].text == "-24.0"


def test_no_joint_recovered(card_of):
    made = small()
    made.r2["W1", "demos"] = (-0.2, -0.1, -0.4)
    line = card_of(made).findings[0]
    assert "No joint has an R2 above 0: lift, the best, has -0.10 [-0.17, -0.05]" in line
    assert "above chance" not in line
    assert "less bad than with exchanged targets (p = 0.005), but no better than guessing" in line


def test_joints_that_are_not_shown_to_be_recovered(card_of):
    made = small()
    made.r2["W1", "demos"] = (0.01, 0.03, -0.02)
    assert "none is shown to be recovered" in card_of(made).findings[0]
    made.r2["W1", "demos"] = (0.01, 0.3, -0.02)
    assert "none is shown to be recovered" not in card_of(made).findings[0]


def test_a_ranking_that_needs_no_latents_is_said(card_of):
    ranked = {"W1.g1b.top1": 0.4, "pixels.g1b.top1": 0.6}
    for alone, said in ((0.97, "is nearly solved without latents"), (0.7, "is done as well without latents")):
        lines = card_of(with_measurements(small(), ranked | {"W1.g1b.action_only": alone})).findings
        (line,) = [line for line in lines if said in line]
        assert f"first in {alone:.3f} [" in line and ", more often than by the latents" in line
        assert "(0.400 to 0.600)" in line
    lines = card_of(with_measurements(small(), ranked | {"W1.g1b.action_only": 0.61})).findings
    assert any("by point estimates more often than by the latents" in line for line in lines)
    lines = card_of(with_measurements(small(), ranked | {"W1.g1b.action_only": 0.5})).findings
    assert not any("without latents" in line for line in lines)


def test_one_joint_left(card_of):
    made = small()
    made.untestable = {"demos": ("pan", "lift")}
    card = card_of(made)
    assert "Only wrist_roll can be scored: R2 0.30 [0.23, 0.35]." in card.findings[0]
    assert any("2 joints of demos cannot be tested" in line for line in card.findings)


def test_ceiling(full, card_of):
    assert any(
        "dinov2 on demos" in x and "comes within 0.02 of the backlash ceiling of shoulder_lift," in x
        for x in full.findings
    )
    assert not any("ceiling" in line for line in card_of(small()).findings)


def test_chance_by_the_p_value_and_without_one(full, card_of):
    assert "above chance (p = 0.005)" in full.findings[0]
    made = with_measurements(small(), {"W1.null.mean": 0.62})
    card = card_of(made)
    line = next(e for e in card.encoders if e.name == "W1")
    assert line.null_p == {"demos": 0.005}
    object.__setattr__(line, "null_p", {})
    from reports.findings import findings

    assert "not shown to be above chance (exchanged targets give 0.620 [0.590, 0.650])" in findings(card)[0]


def test_anisotropy_beside_its_null(card_of):
    made = with_measurements(small(), {"W1.anisotropy.null": 0.2, "W1.anisotropy.contrast": 0.55})
    line = card_of(made).findings[0]
    assert "Its anisotropy is 0.610 [0.511, 0.691], beyond what joints of one common R2" in line
    assert "with best and worst joint chosen on training episodes it is 0.550" in line
    made = with_measurements(small(), {"W1.anisotropy.null": 0.7})
    assert "within what joints of one common R2" in card_of(made).findings[0]


def test_models_in_order_with_what_they_were_trained_on(full):
    lines = full.findings
    assert (
        "Evaluated on walk, W1walk (trained on walk) reads more than W1 (trained on demos): "
        "mean R2 +0.292 [0.259, 0.319]." in lines
    )
    assert (
        "Evaluated on demos, W1 (trained on demos) is not separated from W1walk (trained on walk): "
        "mean R2 +0.022 [-0.011, 0.049]." in lines
    )


def test_failed_checks_are_findings(card_of):
    made = small()
    made.checks = [
        {"name": "W1: red channel", "state": "fail", "message": "blue is zero", "remedy": "Re-extract."}
    ]
    card = card_of(made)
    assert "Integrity check W1: red channel says fail: blue is zero." in card.findings
    assert "W1: red channel: Re-extract." in card.change


def test_distance_from_theirs(full, card_of):
    assert any(
        "ours equals theirs to three decimals (0.565), which lies inside our interval" in x for x in full.gap
    )
    assert any(
        "ours (0.682) is 0.268 below theirs (0.950), which lies outside our interval" in x for x in full.gap
    )
    made = small()
    made.study["bars"][0].pop("theirs")
    assert not any("theirs" in line for line in card_of(made).gap)


def test_spread_differs_between_data(full):
    line = next(line for line in full.gap if line.startswith("R2 is relative"))
    assert "wrist_flex (0.23 and 0.42) and wrist_roll (0.31 and 0.66)" in line
    assert "gripper" not in line


def test_how_far_a_firm_bar_is_from_turning(card_of):
    change = card_of(small()).change
    assert "B1 would turn if W1.r2.mean rose by 0.203 to 0.8, 6.3 times the reach of its interval." in change
    assert any(line.startswith("B2 would turn if W1.anisotropy fell by 0.410 to 0.2") for line in change)


def test_how_many_episodes_would_settle_a_straddling_bar(card_of):
    made = small()
    made.r2["W1", "demos"] = (0.78, 0.80, 0.76)  # mean 0.78, reach 0.0324 towards the mark 0.02 away
    card = card_of(made)
    assert card.bars[0].firm == "undecided"
    assert any(
        "B1 would be settled by about 32 evaluation episodes like these 12" in line for line in card.change
    )


def test_a_bar_that_lies_on_its_mark(card_of):
    made = small()
    made.r2["W1", "demos"] = (0.7999, 0.7999, 0.7999)
    assert any("B1 lies 0.000 from its mark, too close" in line for line in card_of(made).change)


def test_what_is_not_tested_is_named_with_its_reason(card_of):
    card = card_of(Made(drop=("dinov2",), unavailable={"dinov2": "no weights"}))
    assert (
        "B3 was not tested, because dinov2 is not available here: no weights; "
        "measuring it would decide C3." in card.change
    )
    assert any(line.startswith("C4 has no bar in this study") for line in card.change)


def test_comparison_needs_intervals(card_of):
    made = small()
    made.drop = ("W1.r2.mean", "pixels.r2.mean")
    made.extra = [
        Measurement("W1.r2.mean", 0.9, n_episodes=12),
        Measurement("pixels.r2.mean", 0.1, n_episodes=12),
    ]
    made.drop = ("W1.r2.mean - ", "pixels.r2.mean - ")
    order = compare(card_of(made), "W1.r2.mean", "pixels.r2.mean")
    assert (order.state, order.words) == ("open", "0.900 against 0.100, without intervals")


def test_comparison_turns_a_difference_that_was_measured_the_other_way(card_of):
    made = with_measurements(small(), {"pixels.r2.mean - W1.r2.mean": -0.2})
    made.drop = ("W1.r2.mean - ",)
    order = compare(card_of(made), "W1.r2.mean", "pixels.r2.mean")
    assert (order.state, order.words) == ("above", "+0.200 [0.170, 0.230]")


def test_comparison_of_what_was_not_measured(card_of):
    assert compare(card_of(small()), "W1.r2.mean", "W9.r2.mean").state == "missing"
