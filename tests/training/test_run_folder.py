"""The metrics of a run, whatever a kill left of them."""

import json
from pathlib import Path

import pytest

from glow.training.config import TrainConfig
from glow.training.run_folder import METRICS_FILE, RunFolder, read_metrics

ROWS = [{"step": step, "loss": 0.5} for step in (10, 20, 30)]


def write(folder: Path, tail: str = "") -> None:
    text = "".join(json.dumps(row) + "\n" for row in ROWS)
    (folder / METRICS_FILE).write_text(text + tail, encoding="utf-8")


@pytest.mark.parametrize("tail", ["", "{", '{"step": 40, "lo', '{"step": 40, "loss": 0.5}'])
def test_a_half_last_line_is_left_out_and_dropped_by_a_resumed_run(tail: str, tmp_path: Path) -> None:
    write(tmp_path, tail)
    assert read_metrics(tmp_path) == ROWS
    RunFolder(tmp_path, active=True).open(TrainConfig(name="x"), 20)
    assert [json.loads(line)["step"] for line in (tmp_path / METRICS_FILE).read_text().splitlines()] == [
        10,
        20,
    ]


def test_no_metrics_are_none(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []


def test_a_resumed_run_replaces_its_metrics_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill while it writes leaves the old ones."""
    write(tmp_path)

    def killed(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        RunFolder(tmp_path, active=True).open(TrainConfig(name="x"), 10)
    assert read_metrics(tmp_path) == ROWS
