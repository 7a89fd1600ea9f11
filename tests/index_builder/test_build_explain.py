"""What reasons for hits need is copied from the model, left out on demand, and is of that model or refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import click.testing
import pytest

from glow.artifact import read_manifest
from glow.artifact.model import EXPLAIN_FILES
from glow.errors import MismatchError
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS

Run = Callable[..., click.testing.Result]


def test_a_version_explains_and_says_what_that_takes(
    build: Run, toy_corpus: Path, live: Callable[[], Index], output: Path, toy_model: Path
) -> None:
    report = output.parent / "report.json"
    done = build(toy_corpus, "--no-lexical", "--json", report)
    assert done.exit_code == 0, done.stderr
    size_bytes = sum((toy_model / name).stat().st_size for name in EXPLAIN_FILES)
    assert json.loads(report.read_bytes())["explain"] == {"size_bytes": size_bytes}
    index = live()
    assert index.explainer is not None
    found = index.explainer.explain_document(index[STORED_FIELDS].get("toy/0"))
    (score,), (row,) = (part[0] for part in index[VECTORS].search(found.vector[None], 1))
    assert (row, round(float(score), 5)) == (0, 1.0)


def test_explaining_can_be_left_out(build: Run, toy_corpus: Path, live: Callable[[], Index]) -> None:
    assert build(toy_corpus, "--no-explain", "--no-lexical").exit_code == 0
    index = live()
    assert index.explainer is None
    assert not [name for name in index.manifest.files if "explain" in name or "document.bin" in name]


def test_a_model_without_explain_graphs_still_builds(
    run: Run, toy_model: Path, toy_corpus: Path, output: Path, live: Callable[[], Index], tmp_path: Path
) -> None:
    older = shutil.copytree(toy_model, tmp_path / "toy-model")
    manifest = read_manifest(older, "model")
    files = {name: record for name, record in manifest.files.items() if "explain" not in name}
    (older / "manifest.json").write_bytes(manifest.model_copy(update={"files": files}).to_bytes())
    done = run("build", "--input", toy_corpus, "--model", older, "--index-root", output, "--threads", 1)
    assert done.exit_code == 0, done.stderr
    assert live().explainer is None


def test_graphs_of_another_model_are_refused(
    build: Run, toy_corpus: Path, live: Callable[[], Index], output: Path
) -> None:
    """Each is missing in turn, or differs from what the index says of its model."""
    assert build(toy_corpus, "--no-lexical").exit_code == 0
    index = live()
    folder = output / index.version
    path = folder / "manifest.json"
    for name in EXPLAIN_FILES:
        parent = json.loads(json.dumps(index.manifest.parents))
        parent["model"]["files"][name] = "0" * 64
        path.write_bytes(index.manifest.model_copy(update={"parents": parent}).to_bytes())
        with pytest.raises(MismatchError, match=f"model/{name} is not the file of the model"):
            Index.open(folder)
    files = {name: record for name, record in index.manifest.files.items() if name != "model/document.bin"}
    path.write_bytes(index.manifest.model_copy(update={"files": files}).to_bytes())
    with pytest.raises(MismatchError, match=r"model/document\.bin"):
        Index.open(folder)
