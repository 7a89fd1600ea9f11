"""Hostile compressed input through the whole command: one line, nothing outside, nothing left, little memory."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.index_builder.hostile_inputs import INPUTS, LONG

ROOT = Path(__file__).parents[2]
MOST_MB = 512.0
Outcomes = dict[str, dict[str, Any]]


def outcomes_of(scratch: Path, model: Path, *flags: str) -> Outcomes:
    """By a process of its own: its memory is theirs."""
    command = [sys.executable, "-m", "tests.index_builder.hostile_inputs", str(scratch), str(model), *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    return {each["name"]: each for each in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, toy_model: Path) -> Outcomes:
    return outcomes_of(tmp_path_factory.mktemp("hostile"), toy_model)


def require_one_line(outcome: dict[str, Any], codes: tuple[int, ...]) -> None:
    assert outcome["exit"] in codes, outcome
    assert outcome["said"].startswith("glow: error (") and outcome["said"].count("\n") == 1, outcome
    assert len(outcome["said"]) < 3_000, outcome


@pytest.mark.parametrize("name", INPUTS)
def test_hostile_input_ends_in_one_line_and_leaves_only_its_rejects(name: str, outcomes: Outcomes) -> None:
    require_one_line(outcomes[name], (2, 4))
    assert all(path.startswith("root/rejects-") for path, _ in outcomes[name]["left"])
    assert len(outcomes[name]["left"]) <= (1 if outcomes[name]["exit"] == 4 else 0)


def test_hostile_input_takes_little_memory(outcomes: Outcomes) -> None:
    assert max(each["peak_mb"] for each in outcomes.values()) <= MOST_MB
    assert not Path("/tmp/escaped").exists()  # noqa: S108 - must not be written


@pytest.mark.slow
def test_hostile_input_that_takes_time_takes_no_memory(tmp_path: Path, toy_model: Path) -> None:
    outcomes = outcomes_of(tmp_path, toy_model, "--long")
    assert outcomes.keys() == LONG.keys()
    for outcome in outcomes.values():
        assert outcome["exit"] in (0, 4), outcome
        told = [
            line for line in outcome["said"].splitlines() if not line.startswith("read: ")
        ]  # how far it is
        assert outcome["exit"] == 0 or (len(told) == 1 and told[0].startswith("glow: error (")), outcome
        assert outcome["peak_mb"] <= MOST_MB
