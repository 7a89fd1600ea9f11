"""Collections of ir_datasets by name, and GLOW as a model of MTEB: both with the real packages."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ir_datasets
import mteb
import pytest
import typer
from datasets import Dataset
from ir_datasets.formats import BaseDocs, BaseQrels, BaseQueries, GenericQuery, TrecQrel
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from typer.testing import CliRunner

from glow.collection import read_documents, read_qrels, read_queries
from glow.errors import InputError
from glow.evaluation.commands.run import run_command
from glow.evaluation.foreign_data import data_folder
from glow.evaluation.mteb import GlowSearch

TEXTS = {
    "bees": "Honey bees find home by the sun.",
    "owls": "Owls hunt voles at night and sleep by day.",
    "steam": "A steam engine turns heat into motion.",
}
QUESTIONS = {"q1": ("how do bees find home", "bees"), "q2": ("what do owls hunt", "owls")}


class Page(NamedTuple):
    """A document of a collection with fields of its own."""

    doc_id: str
    headline: str
    body: str
    year: int
    tags: tuple[str, ...]


class Docs(BaseDocs):
    """The texts."""

    def docs_iter(self) -> Iterator[Page]:
        """As ir_datasets asks for them."""
        for number, (name, text) in enumerate(TEXTS.items()):
            yield Page(name, name.title(), text, 2000 + number, ("a",))

    def docs_cls(self) -> type[Page]:
        """Of a document."""
        return Page


class Queries(BaseQueries):
    """The questions."""

    def queries_iter(self) -> Iterator[Any]:
        """As ir_datasets asks for them."""
        return (GenericQuery(name, text) for name, (text, _) in QUESTIONS.items())

    def queries_cls(self) -> Any:
        """Of a question."""
        return GenericQuery


class Qrels(BaseQrels):
    """The judgements."""

    def qrels_iter(self) -> Iterator[Any]:
        """As ir_datasets asks for them."""
        return (TrecQrel(name, found, 1, "0") for name, (_, found) in QUESTIONS.items())

    def qrels_cls(self) -> Any:
        """Of a judgement."""
        return TrecQrel

    def qrels_defs(self) -> dict[int, str]:
        """What grades mean."""
        return {}


@pytest.fixture(scope="module")
def registered() -> str:
    """A collection of ir_datasets' by name."""
    ir_datasets.registry.register("glow-toy", ir_datasets.Dataset(Docs()))
    ir_datasets.registry.register("glow-toy/test", ir_datasets.Dataset(Docs(), Queries(), Qrels()))
    return "irds:glow-toy/test"


def test_a_collection_becomes_a_folder_once(registered: str, tmp_path: Path) -> None:
    folder = data_folder(Path(registered), ["test"], tmp_path)
    found = {each.id: each for each in read_documents(folder / "corpus.jsonl", ("title", "text"))}
    assert found["owls"].fields == {"title": ("Owls",), "text": (TEXTS["owls"],)}
    assert found["owls"].metadata == {"year": 2001}
    assert [each.text for each in read_queries(folder / "queries.jsonl")] == [
        text for text, _ in QUESTIONS.values()
    ]
    assert [(row.query_id, row.document_id) for row in read_qrels(folder / "qrels" / "test.tsv")] == [
        ("q1", "bees"),
        ("q2", "owls"),
    ]
    (folder / "corpus.jsonl").touch()
    before = (folder / "corpus.jsonl").stat().st_mtime_ns
    assert data_folder(Path(registered), ["dev"], tmp_path) == folder
    assert (folder / "corpus.jsonl").stat().st_mtime_ns == before
    assert (folder / "qrels" / "dev.tsv").is_file()
    assert data_folder(tmp_path, ["test"]) == tmp_path


def test_the_command_takes_the_name(registered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    app = typer.Typer()
    app.command()(run_command)
    arguments = [
        "--data",
        registered,
        "--split",
        "test",
        "--retriever",
        "hybrid",
        "--measures",
        "RR@10",
        "--json",
        str(tmp_path / "r.json"),
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "r.json").read_text())["measures"]["RR@10"] == 1.0


def test_what_it_does_not_know_is_told(registered: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="knows no 'glow-none'"):
        data_folder(Path("irds:glow-none"), ["test"], tmp_path)
    with pytest.raises(InputError, match="has no queries and no qrels"):
        data_folder(Path("irds:glow-toy"), ["test"], tmp_path)


@pytest.mark.parametrize("retriever", ["dense", "lexical", "hybrid"])
def test_mteb_measures_a_task(retriever: Any) -> None:
    class Toy(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="GlowToy", description="a toy", dataset={"path": "none", "revision": "1"}, type="Retrieval", category="t2t",
            modalities=["text"], eval_splits=["test"], eval_langs=["eng-Latn"], main_score="mrr_at_10",
        )  # fmt: skip

        def load_data(self, num_proc: int | None = None, **unused: Any) -> None:
            corpus = Dataset.from_list(
                [{"id": name, "text": text, "title": ""} for name, text in TEXTS.items()]
            )
            queries = Dataset.from_list([{"id": name, "text": text} for name, (text, _) in QUESTIONS.items()])
            relevant = {name: {found: 1} for name, (_, found) in QUESTIONS.items()}
            split = {"corpus": corpus, "queries": queries, "relevant_docs": relevant, "top_ranked": None}
            self.dataset = {"default": {"test": split}}
            self.data_loaded = True

    result = mteb.evaluate(
        GlowSearch(retriever=retriever), Toy(), cache=None, co2_tracker=False, show_progress_bar=False
    )
    assert result.task_results[0].get_score() == 1.0
