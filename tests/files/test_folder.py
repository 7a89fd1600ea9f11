"""A folder of 300 mixed files becomes a search by one command, and a second `glow sync` encodes what changed."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from glow_service.app import create_app
from glow_service.settings import Settings
from tests.files.folder import DAMAGED, FILES, FOREIGN, MAKERS, Folder, make
from tests.program import glow
from tests.until import until


@dataclass(frozen=True)
class Indexed:
    """The folder, its index and the build's report and words."""

    folder: Folder
    root: Path
    report: dict[str, Any]
    words: str

    def rejects(self) -> list[dict[str, Any]]:
        file = self.root / self.report["version"] / "rejects.jsonl"
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@contextmanager
def served(root: Path) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Serves an index from this process; yields the first hit of a query."""
    app = create_app(Settings(index_root=root), on_failure=lambda: None)
    with TestClient(app) as client:
        until(lambda: client.get("/readyz").status_code == 200)

        def first(query: str) -> dict[str, Any]:
            response = client.post("/search", json={"query": query, "top_k": 1})
            assert response.status_code == 200, response.text
            return dict(response.json()["hits"][0])

        yield first


def _is_of(name: str, hit: dict[str, Any]) -> bool:
    """Whether a hit comes from a file: by its path, or by the id of a row in it."""
    return hit["metadata"].get("path") == name or (name.endswith((".csv", ".json")) and "/" not in hit["id"])


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Indexed:
    folder = make(tmp_path_factory.mktemp("files") / "papers")
    assert sum(1 for each in folder.path.rglob("*") if not each.is_dir()) == FILES
    root, report = folder.path.with_name("index"), folder.path.with_name("report.json")
    done = glow("build", "--input", folder.path, "--index-root", root, "--json", report)
    assert done.returncode == 0, done.stderr[-3_000:]
    return Indexed(folder, root, json.loads(report.read_text(encoding="utf-8")), done.stdout)


def test_every_readable_file_is_found_by_a_sentence_in_it(indexed: Indexed) -> None:
    with served(indexed.root) as first:
        asked = indexed.folder.sentences.items()
        missed = {name: sentence for name, sentence in asked if not _is_of(name, first(sentence))}
        assert not missed, "\n".join(missed)
        assert not first("The hidden workspace nobody wants to find")["id"].startswith((".", "damaged/"))


def test_links_dates_and_folders_come_with_the_hits(indexed: Indexed) -> None:
    with served(indexed.root) as first:
        hit = first(next(text for name, text in indexed.folder.sentences.items() if name.endswith(".pdf")))
        assert hit["id"].endswith(".pdf#page=2") and hit["fields"]["url"] == hit["id"]
        assert hit["metadata"]["page"] == 2
        assert hit["metadata"]["path"] == hit["id"].removesuffix("#page=2")
        assert hit["metadata"]["folder"] == hit["metadata"]["path"].rpartition("/")[0]
        assert hit["metadata"]["modified"].startswith("20")
        hit = first(next(text for name, text in indexed.folder.sentences.items() if name.endswith(".htm")))
        assert hit["fields"]["title"].startswith("Größe")


def test_rejects_and_skips_name_all_others(indexed: Indexed) -> None:
    reasons = {each["file"]: each["reason"] for each in indexed.rejects()}
    assert reasons.pop("out.md")
    assert reasons.keys() == {f"damaged/{name}" for name in DAMAGED} and all(reasons.values())
    others = {
        name: reasons[f"damaged/{name}"]
        for name, (_, said) in DAMAGED.items()
        if not reasons[f"damaged/{name}"].startswith(said)
    }
    assert not others
    assert "1 broken link" in indexed.words and "1 link to a folder" in indexed.words
    for name, count in FOREIGN.items():
        assert f"{count} {Path(name).suffix or 'without ending'}" in indexed.words


def test_a_second_sync_encodes_the_five_that_changed(indexed: Indexed, tmp_path: Path) -> None:
    folder, root, report = tmp_path / "papers", tmp_path / "index", tmp_path / "report.json"
    shutil.copytree(indexed.folder.path, folder, symlinks=True)
    shutil.copytree(indexed.root, root)
    by_ending = {Path(name).suffix: name for name in indexed.folder.sentences}
    news, changed = (
        "The plum walrus was photographed by the lighthouse.",
        (".md", ".txt", ".docx", ".html", ".eml"),
    )
    for ending in changed:
        (folder / by_ending[ending]).write_bytes(MAKERS[ending](news))
    for ending in (".odt", ".epub"):
        (folder / by_ending[ending]).unlink()
    done = glow("sync", "--input", folder, "--index-root", root, "--json", report)
    assert done.returncode == 0, done.stderr[-3_000:]
    counts = json.loads(report.read_text(encoding="utf-8"))["counts"]
    assert (counts["changed"], counts["deleted"], counts["new"], counts["encoded"]) == (5, 2, 0, 5)
    with served(root) as first:
        assert first(news)["metadata"]["path"] in {by_ending[ending] for ending in changed}
        gone = by_ending[".odt"]
        assert not _is_of(gone, first(indexed.folder.sentences[gone]))
