"""The lexical index of a build: built by default, with the words of the term statistics, omitted on request."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from glow.artifact import IndexRoot, read_manifest, write_artifact
from glow.errors import FormatError
from glow.index import DEFAULT_FUSION, Fusion, FusionWeights, Index
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from tests.index_builder.conftest import Live, Run


def test_a_build_indexes_the_words_and_says_what_it_took(
    build: Run, live: Live, toy_corpus: Path, tmp_path: Path
) -> None:
    assert build(toy_corpus, "--json", tmp_path / "report.json").exit_code == 0
    index = live()
    assert index.holds(POSTINGS)
    assert len(index[POSTINGS]) == index[STORED_FIELDS].count == 50
    assert index.fusion == DEFAULT_FUSION
    _, rows = index[POSTINGS].search(index.preprocessor.pieces.words("How do bees find home?"), 1)
    assert index[STORED_FIELDS].rows(rows.tolist())[0].id == "toy/0"
    report = json.loads((tmp_path / "report.json").read_bytes())
    assert report["options"]["lexical"] is True
    assert report["seconds"]["lexical"] >= 0
    told = report["lexical"]
    assert (told["kind"], told["postings"]) == ("bm25", index[POSTINGS].header.postings)  # type: ignore[attr-defined]  # the part itself, behind its view
    assert told["bytes_per_posting"] == pytest.approx(told["size_bytes"] / told["postings"], abs=0.01)


def test_idf_is_the_one_of_the_indexs_table(build: Run, live: Live, toy_corpus: Path, tmp_path: Path) -> None:
    """With another table the same words weigh otherwise, and the same documents are found."""
    half = tmp_path / "half.jsonl"
    half.write_text("".join(toy_corpus.read_text().splitlines(keepends=True)[:25]))
    found = []
    for source in ("corpus", "model"):
        assert build(half, "--term-stats", source).exit_code == 0
        index = live()
        assert index.holds(POSTINGS)
        scores, rows = index[POSTINGS].search(["bees", "home"], 50)
        found.append((sorted(rows.tolist()), scores.tolist()))
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]


def test_without_lexical_there_is_none(build: Run, live: Live, toy_corpus: Path) -> None:
    assert build(toy_corpus, "--no-lexical").exit_code == 0
    index = live()
    assert not index.holds(POSTINGS)
    assert not any(name.startswith("impacts/") for name in index.manifest.files)


@pytest.fixture
def changed(toy_index: Path, tmp_path: Path) -> Callable[[Callable[[Path], None]], Path]:
    """A copy of the toy version with files changed and the manifest made anew."""

    def make(change: Callable[[Path], None]) -> Path:
        root = IndexRoot(toy_index)
        source = root.folder(root.current())
        manifest = read_manifest(source, "index")
        with write_artifact(tmp_path / "changed", "index") as writer:
            shutil.copytree(source, writer.folder, dirs_exist_ok=True)
            writer.hashes, writer.parents, writer.counts = manifest.hashes, manifest.parents, manifest.counts
            change(writer.folder)
        return tmp_path / "changed"

    return make


def test_a_version_opens_with_the_fusion_that_it_brings(changed: Callable[..., Path]) -> None:
    fusion = Fusion(method="rrf", k=10, weights=FusionWeights(dense=1, lexical=2))
    assert Index.open(changed(lambda folder: fusion.save(folder / "fusion.json"))).fusion == fusion


def test_a_fusion_that_cannot_be_meant_is_refused(changed: Callable[..., Path]) -> None:
    folder = changed(lambda folder: (folder / "fusion.json").write_text('{"method": "magic"}'))
    with pytest.raises(FormatError, match=r"fusion\.json.*magic"):
        Index.open(folder)
