"""The notebook runs from its first cell to its last, and shows what it says."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "docs" / "tour.ipynb"


def test_the_tour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "keep outputs out of the repository"
    monkeypatch.setenv("GLOW_TOUR", str(tmp_path))
    monkeypatch.setenv("PATH", f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}
    ).execute()
    shown = "\n".join(str(output) for cell in notebook.cells for output in cell.get("outputs", []))
    for wanted in ("How bees find home", "Dampfloks", "visible", "<em>"):
        assert wanted in shown
