"""The crate's advantages: how they relate to TRL's, and what masking does to them."""

from __future__ import annotations

import math
import random
import statistics
from pathlib import Path

import pytest

from rlox_trainer.advantages import AdvantageError, GroupAdvantages, library_path

NAN = math.nan


def as_trl_does(group: list[float]) -> list[float]:
    mean = statistics.fmean(group)
    return [(reward - mean) / (statistics.stdev(group) + 1e-4) for reward in group]


def test_population_deviation(group_advantages: GroupAdvantages):
    rewards = [1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0]
    mean, deviation = statistics.fmean(rewards), statistics.pstdev(rewards)
    expected = [(reward - mean) / deviation for reward in rewards]
    assert group_advantages.compute(rewards, 8) == pytest.approx(expected)


def test_relation_to_trl_for_groups_of_eight(group_advantages: GroupAdvantages):
    rng = random.Random(0)
    for _ in range(100):
        group = [float(rng.random() < 0.5) for _ in range(8)]
        ours = group_advantages.compute(group, 8)
        theirs = as_trl_does(group)
        if len(set(group)) == 1:
            assert ours == theirs == [0.0] * 8
            continue
        factor = math.sqrt(8 / 7) * (1 + 1e-4 / statistics.stdev(group))
        assert 1.069 < factor < 1.0695
        assert ours == pytest.approx([factor * value for value in theirs], rel=1e-9)


def test_a_tiny_spread_counts_as_none_where_trl_would_scale_it(group_advantages: GroupAdvantages):
    group = [1.0, 1.0 + 1e-9]
    assert group_advantages.compute(group, 2) == [0.0, 0.0]
    assert as_trl_does(group)[1] > 0.0


def test_a_masked_sample_leaves_the_baseline_alone(group_advantages: GroupAdvantages):
    whole = group_advantages.compute([1.0, 0.0, 0.0], 3)
    masked = group_advantages.compute([1.0, NAN, 0.0, 0.0], 4)
    assert masked == [whole[0], 0.0, whole[1], whole[2]]


def test_masking_one_group_does_not_touch_another(group_advantages: GroupAdvantages):
    advantages = group_advantages.compute([NAN, NAN, 1.0, 0.0, 1.0, NAN], 2)
    assert advantages == [0.0, 0.0, 1.0, -1.0, 0.0, 0.0]


def test_ragged_groups_are_refused(group_advantages: GroupAdvantages):
    for rewards, group_size in (([1.0, 0.0, 1.0], 2), ([1.0], 0), ([NAN, 1.0, 1.0], 2)):
        with pytest.raises(AdvantageError, match="do not make groups"):
            group_advantages.compute(rewards, group_size)


def test_the_librarys_refusal_is_put_into_words(group_advantages: GroupAdvantages):
    with pytest.raises(AdvantageError, match="not finite"):
        group_advantages.compute([1.0, math.inf], 2)


def test_a_missing_library_names_the_build_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("RLOX_RL_OPS_LIB", str(tmp_path / "absent.so"))
    with pytest.raises(AdvantageError, match="cargo build --release -p rlox-rl-ops-ffi"):
        library_path()


def test_a_file_that_is_no_library_is_refused(tmp_path: Path):
    path = tmp_path / "text.so"
    path.write_text("no library")
    with pytest.raises(AdvantageError, match="is not the binding"):
        GroupAdvantages(path)
