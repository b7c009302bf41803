"""Injections depend on seed, step and index alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlox_trainer.injection import CorpusError, Injector, load_injectable

STEPS = range(1, 31)
INDICES = range(96)


def everything(injector: Injector) -> dict[tuple[int, int], str]:
    return {
        (step, index): snippet.id
        for step in STEPS
        for index, snippet in injector.draw(step, INDICES).items()
    }


def test_both_conditions_of_a_pair_meet_the_same_snippets(harmless_corpus: Path):
    snippets = load_injectable(harmless_corpus)
    first, second = (everything(Injector(snippets, 0.1, seed=4)) for _ in range(2))
    assert first and first == second
    assert first != everything(Injector(snippets, 0.1, seed=5))


def test_a_draw_does_not_depend_on_what_was_drawn_before(harmless_corpus: Path):
    snippets = load_injectable(harmless_corpus)
    whole = everything(Injector(snippets, 0.5, seed=0))
    late = Injector(snippets, 0.5, seed=0).draw(7, range(50, 60))
    assert {i: s.id for i, s in late.items()} == {
        i: id for (step, i), id in whole.items() if step == 7 and 50 <= i < 60
    }


def test_a_higher_fraction_keeps_the_places_of_a_lower_one(harmless_corpus: Path):
    snippets = load_injectable(harmless_corpus)
    low, high = (set(everything(Injector(snippets, f, seed=0))) for f in (0.01, 0.10))
    assert low < high


def test_fraction_zero_injects_nothing_and_one_everything(harmless_corpus: Path):
    snippets = load_injectable(harmless_corpus)
    assert everything(Injector([], 0.0, seed=0)) == {}
    assert len(everything(Injector(snippets, 1.0, seed=0))) == len(STEPS) * len(INDICES)


@pytest.mark.parametrize("fraction", [0.01, 0.05, 0.10])
def test_the_rate_is_the_fraction(harmless_corpus: Path, fraction: float):
    drawn = everything(Injector(load_injectable(harmless_corpus), fraction, seed=0))
    total = len(STEPS) * len(INDICES)
    # Three standard deviations of a binomial; the seed is fixed, so this never flickers.
    assert abs(len(drawn) - fraction * total) < 3 * (total * fraction * (1 - fraction)) ** 0.5


def test_snippets_that_need_their_own_tests_are_never_injected(harmless_corpus: Path):
    snippets = load_injectable(harmless_corpus)
    assert [snippet.id for snippet in snippets] == ["wrong-answer", "raises", "long"]


def test_a_snippet_brings_its_own_tests_or_the_corpus_s(tmp_path: Path):
    path = tmp_path / "corpus.json"
    plain = {"id": "a", "family": "harmless", "code": "pass\n"}
    own = {**plain, "id": "b", "tests": ["assert True"]}
    path.write_text(json.dumps({"version": 1, "tests": ["assert 1"], "snippets": [plain, own]}))
    assert [s.tests for s in load_injectable(path)] == [("assert 1",), ("assert True",)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("not json", "not an adversarial corpus"),
        ('{"version": 1}', "not an adversarial corpus"),
        ("[]", "not an adversarial corpus"),
        (json.dumps({"version": 2, "tests": [], "snippets": []}), "version 2"),
        (json.dumps({"version": 1, "tests": [], "snippets": []}), "no snippet"),
    ],
)
def test_an_unusable_corpus_is_refused(tmp_path: Path, text: str, reason: str):
    path = tmp_path / "corpus.json"
    path.write_text(text)
    with pytest.raises(CorpusError, match=reason):
        load_injectable(path)
