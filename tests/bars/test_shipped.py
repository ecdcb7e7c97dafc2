from __future__ import annotations

import pytest

from bars import Study, StudyError, template, template_names


def load(tmp_path, name):
    (tmp_path / "study.yaml").write_text(template(name))
    return Study.load(tmp_path)


def test_what_ships():
    assert template_names() == ["demo", "lejepa", "world-models"]
    with pytest.raises(StudyError) as error:
        template("lejpa")
    assert str(error.value) == "template 'lejpa': does not ship with jointprobe - did you mean lejepa?"


def test_the_reference_study_holds_the_published_bars(tmp_path):
    study = load(tmp_path, "lejepa")
    assert {bar.id: bar.bar for bar in study.bars} == {
        "B1": "W1.r2.mean < 0.80",
        "B2": "W1.anisotropy >= 0.20",
        "B3": "same_order(W1, W2; r2.mean; g1b.top1)",
    }
    assert study.primary_claim.id == "partial-anisotropic"
    assert {claim.id for claim in study.claims if claim.not_proven} >= {"gate-1", "lean"}
    assert study.series is None, "the place in a series is the user's own"
    assert len(study.data["bowls"].evaluate) == 25


def test_the_demo_study_holds_both_halves(tmp_path):
    study = load(tmp_path, "demo")
    assert list(study.data) == ["demos", "walk"]
    for data in study.data.values():
        assert (data.train_episodes, data.evaluate_episodes) == (list(range(24)), list(range(24, 36)))
        assert data.views == ["front", "wrist"]
    assert {bar.id: bar.bar for bar in study.bars} == {
        "B1": "W1.r2.mean < 0.80",
        "B2": "W1.anisotropy >= 0.20",
        "B3": "same_order(W1, dinov2; r2.mean; g1b.top1)",
        "B4": "W1walk/walk.r2.mean - W1/walk.r2.mean > 0",
        "B5": "W1walk/walk.anisotropy - W1/walk.anisotropy < 0",
        "B6": "dinov2.r2.mean - W1.r2.mean > 0",
    }
    roles = {name: encoder.role for name, encoder in study.encoders.items()}
    assert roles == {
        "W1": "model",
        "W1walk": "model",
        "untrained": "control",
        "pixels": "baseline",
        "pixelswalk": "baseline",
        "dinov2": "model",
    }
    assert [name for name, encoder in study.encoders.items() if encoder.optional] == ["dinov2"]
    recipe, walk_recipe = study.encoders["W1"].train, study.encoders["W1walk"].train
    differing = {key for key in {*recipe, *walk_recipe} if recipe.get(key) != walk_recipe.get(key)}
    assert differing == {"pairs", "stride_s"}  # the same recipe, but for what a pair is
