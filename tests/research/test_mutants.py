"""Every fault that `python -m research mutants` plants still fits the code."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from research.mutants.__main__ import Fault, faults

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("fault", list(faults()), ids=lambda fault: fault.key)
def test_a_fault_changes_one_place_and_leaves_code_that_runs(fault: Fault) -> None:
    text = (ROOT / fault.path).read_text(encoding="utf-8")
    assert text.count(fault.old) == 1
    assert fault.new != fault.old
    ast.parse(text.replace(fault.old, fault.new))
    assert all((ROOT / test).exists() for test in fault.tests)


def test_names_are_distinct_and_there_are_enough() -> None:
    counted = Counter(fault.key for fault in faults())
    assert max(counted.values()) == 1
    assert len(counted) >= 140
