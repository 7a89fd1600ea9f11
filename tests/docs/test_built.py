"""The documentation as a site builds, and no link leads nowhere; the notebook runs from its first cell to its last."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.program import ROOT, python


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    options = "-m sphinx -q -W --keep-going -b html -c docs/site -d".split()
    done = python(*options, tmp_path / "trees", ".", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    pages = "index docs/site/index README docs/improve docs/results/scale".split()
    assert all((tmp_path / "site" / f"{page}.html").is_file() for page in pages)


def test_the_tour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.read(ROOT / "docs" / "tour.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "keep outputs out of the repository"
    monkeypatch.setenv("GLOW_TOUR", str(tmp_path))
    monkeypatch.setenv("PATH", f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    place = {"metadata": {"path": str(ROOT)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=place).execute()
    shown = "\n".join(str(output) for cell in notebook.cells for output in cell.get("outputs", []))
    for expected in ("How bees find home", "Dampfloks", "visible", "<em>"):
        assert expected in shown
