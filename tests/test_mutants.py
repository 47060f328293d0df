"""The catalogue of privacy bugs fits today's code: a patch that no longer applies tests nothing."""

import ast
from pathlib import Path

import pytest
from benchmarks.mutants.patches import PACKAGE, patches
from benchmarks.mutants.product import SCENARIOS
from benchmarks.mutants.rooms import FIRST, selection_of

ROOT, PATCHES = Path(__file__).parents[1], patches()


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_every_patch_applies_to_todays_code_and_leaves_it_valid(patch):
    text = (PACKAGE / patch.file).read_text(encoding="utf-8")
    changed = patch.patched(text)
    assert changed != text
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))


def test_every_patch_names_a_scenario_and_tests_that_exist():
    assert len({patch.name for patch in PATCHES}) == len(PATCHES) >= 60
    for patch in PATCHES:
        assert not patch.releases or patch.scenario in SCENARIOS, patch.name
        assert all((ROOT / path).exists() for path in selection_of(patch.file)), patch.name
    assert FIRST.keys() <= {patch.name for patch in PATCHES}
