"""Collections of ir_datasets by name, and GLOW as a model of MTEB: both with the real packages."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ir_datasets
import mteb
import pytest
import typer
from datasets import Dataset
from ir_datasets.formats import (
    BaseDocs,
    BaseQrels,
    BaseQueries,
    BaseScoredDocs,
    GenericQuery,
    GenericScoredDoc,
    TrecQrel,
)
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from typer.testing import CliRunner

from glow.collection import read_documents, read_qrels, read_queries
from glow.errors import InputError
from glow.evaluation.commands.fetch import fetch_command
from glow.evaluation.commands.run import run_command
from glow.evaluation.foreign_data import data_folder, fetch
from glow.evaluation.mteb import GlowSearch
from glow.evaluation.runs import read_run

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


PAGES = [Page(name, name.title(), text, 2000 + n, ("a",)) for n, (name, text) in enumerate(TEXTS.items())]


class Docs(BaseDocs):
    """Documents."""

    def __init__(self, pages: Sequence[Page] = PAGES) -> None:
        self.pages = pages

    def docs_iter(self) -> Iterator[Page]:
        """As ir_datasets asks for them."""
        yield from self.pages

    def docs_cls(self) -> type[Page]:
        """Of a document."""
        return Page


class Queries(BaseQueries):
    """Questions."""

    def __init__(self, texts: Sequence[tuple[str, str]] = ()) -> None:
        self.texts = texts or [(name, text) for name, (text, _) in QUESTIONS.items()]

    def queries_iter(self) -> Iterator[Any]:
        """As ir_datasets asks for them."""
        return (GenericQuery(name, text) for name, text in self.texts)

    def queries_cls(self) -> Any:
        """Of a question."""
        return GenericQuery


class Qrels(BaseQrels):
    """Judgments."""

    def qrels_iter(self) -> Iterator[Any]:
        """As ir_datasets asks for them."""
        return (TrecQrel(name, found, 1, "0") for name, (_, found) in QUESTIONS.items())

    def qrels_cls(self) -> Any:
        """Of a judgment."""
        return TrecQrel

    def qrels_defs(self) -> dict[int, str]:
        """What grades mean."""
        return {}


class RankedDocuments(BaseScoredDocs):
    """Rankings; a row that is an error is raised."""

    def __init__(self, *rows: tuple[str, str, float] | Exception) -> None:
        self.rows = rows

    def scoreddocs_iter(self) -> Iterator[Any]:
        """As ir_datasets asks for them."""
        for row in self.rows:
            if isinstance(row, Exception):
                raise row
            yield GenericScoredDoc(*row)


def register(name: str, *parts: Any) -> str:
    """Registers a dataset under a name of its own."""
    ir_datasets.registry.register(name, ir_datasets.Dataset(*parts))
    return f"irds:{name}"


def lines(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


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
    with pytest.raises(InputError, match="does not know 'glow-none'"):
        data_folder(Path("irds:glow-none"), ["test"], tmp_path)
    with pytest.raises(InputError, match="has no queries and no qrels"):
        data_folder(Path("irds:glow-toy"), ["test"], tmp_path)


def test_splits_of_the_same_documents_become_one_folder(tmp_path: Path) -> None:
    docs, qrels = Docs(), Qrels()
    names = [
        register("glow-two/train", docs, Queries(), qrels),
        register("glow-two/dev", docs, Queries([("q1", QUESTIONS["q1"][0]), ("q9", "steam")]), qrels),
    ]
    out = tmp_path / "new" / "two"
    app = typer.Typer()
    app.command()(fetch_command)
    done = CliRunner().invoke(app, [*names, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert f"{out}: 3 documents, 3 queries, 2 judgments train, 2 judgments dev" in done.output
    assert [query.id for query in read_queries(out / "queries.jsonl")] == ["q1", "q2", "q9"]
    assert len(list(read_qrels(out / "qrels" / "dev.tsv"))) == 2
    files = ["corpus.jsonl", "dev.tsv", "qrels", "queries.jsonl", "train.tsv"]
    assert sorted(path.name for path in out.rglob("*")) == files
    for wrong, message in (
        ([names[0], names[0]], "same split"),
        ([names[0], register("glow-other/dev", Docs(), Queries(), qrels)], "do not share their documents"),
        (["glow-two/dev"], "expected irds:NAME"),
    ):
        with pytest.raises(InputError, match=message):
            fetch(wrong, tmp_path / "other")
    with pytest.raises(InputError, match="exists already"):
        fetch(names, out)
    assert [path.name for path in out.parent.iterdir()] == ["two"]


def test_rankings_become_a_run_and_the_hardest_negatives(tmp_path: Path) -> None:
    pages = [*PAGES, *(Page(f"d{number}", "", "text", 1, ()) for number in range(20))]
    rows = [("q1", f"d{number}", number / 2) for number in range(20)] + [("q1", "bees", 99.0)]
    ranked = RankedDocuments(*rows, ("q2", "bees", 0.0), ("q2", "steam", 0.0))
    fetch([register("glow-ranked/train", Docs(pages), Queries(), Qrels(), ranked)], tmp_path / "out")
    run = read_run(tmp_path / "out" / "candidates" / "train.run")
    assert [hit.document_id for hit in run["q1"][:3]] == ["bees", "d19", "d18"]
    assert (len(run["q1"]), run["q1"][1].score) == (21, 9.5)
    assert [hit.document_id for hit in run["q2"]] == ["bees", "steam"]
    header, first, second = lines(tmp_path / "out" / "negatives" / "train.jsonl")
    assert (header["data"], header["split"], header["queries"]) == ("out", "train", 2)
    assert [negative["id"] for negative in first["negatives"]] == [
        f"d{number}" for number in range(19, 9, -1)
    ]
    assert first["negatives"][0] == {"id": "d19", "rank": 2, "score": 9.5, "source": "candidates"}
    assert (second["query"], len(second["negatives"])) == (QUESTIONS["q2"][0], 2)


def test_bad_records_are_put_aside_with_their_reason(tmp_path: Path) -> None:
    pages = [
        *PAGES,
        Page("bees", "", "again", 1, ()),
        Page("blank", " ", "", 1, ()),
        Page("", "", "no id", 1, ()),
        Page("lone", "", "half a \ud800 pair", 1, ()),
        Page("two words", "", "text", 1, ()),
    ]
    texts = [*Queries().texts, ("q1", "another text"), ("q3", " "), ("q4", "lone \ud800")]
    ranked = RankedDocuments(
        ("q1", "owls", 2.0),
        ("q1", "gone", 1.0),
        ("q1", "two words", 0.5),
        ("q8", "owls", 1.0),
        ("q4", "owls", 1.0),
    )
    counts = fetch(
        [register("glow-bad/train", Docs(pages), Queries(texts), Qrels(), ranked)], tmp_path / "out"
    )
    found = [(row["file"], row["place"], row["reason"]) for row in lines(tmp_path / "out" / "rejects.jsonl")]
    assert found == [
        ("docs", "bees", "an earlier document has this id"),
        ("docs", "blank", "no text"),
        ("docs", "", "'_id' must be text without NUL and lone surrogates, found ''"),
        ("queries", "q1", "an earlier query has this id"),
        ("queries", "q3", "no text"),
        ("scoreddocs", "q1 gone", "no document has this id"),
        ("scoreddocs", "q1 two words", "a TREC run allows no white space in ids"),
        ("scoreddocs", "q8 owls", "no query has this id"),
    ]
    assert counts == {
        "documents": 5, "queries": 3, "rejects": 8, "judgments train": 2, "candidates train": 2, "negatives train": 1
    }  # fmt: skip
    documents = list(read_documents(tmp_path / "out" / "corpus.jsonl", ("text",)))
    assert documents[3].fields == {"text": ("half a \ufffd pair",)}
    assert [query.text for query in read_queries(tmp_path / "out" / "queries.jsonl")][2] == "lone \ufffd"


def test_a_judged_query_without_text_is_left_out(tmp_path: Path) -> None:
    queries, ranked = (
        Queries([("q1", " "), ("q2", QUESTIONS["q2"][0])]),
        RankedDocuments(("q1", "owls", 1.0), ("q2", "bees", 1.0)),
    )
    fetch([register("glow-textless/train", Docs(), queries, Qrels(), ranked)], tmp_path / "out")
    assert list(read_run(tmp_path / "out" / "candidates" / "train.run")) == ["q2"]
    _, only = lines(tmp_path / "out" / "negatives" / "train.jsonl")
    assert only["query_id"] == "q2"
    found = [(row["file"], row["place"], row["reason"]) for row in lines(tmp_path / "out" / "rejects.jsonl")]
    assert found == [("queries", "q1", "no text"), ("scoreddocs", "q1 owls", "no query has this id")]


def test_scattered_rankings_are_left_out_and_the_folder_is_whole(tmp_path: Path) -> None:
    ranked = RankedDocuments(("q1", "owls", 1.0), ("q2", "owls", 1.0), ("q1", "bees", 2.0))
    name = register("glow-scattered/train", Docs(), Queries(), Qrels(), ranked)
    counts = fetch([name], tmp_path / "out")
    assert counts == {"documents": 3, "queries": 2, "rejects": 1, "judgments train": 2}
    (reject,) = lines(tmp_path / "out" / "rejects.jsonl")
    assert reject["reason"] == "the rows of query q1 are not consecutive; no candidates are written"
    assert not list(tmp_path.rglob("train.run"))
    assert not list(tmp_path.rglob("train.jsonl"))


@pytest.mark.parametrize("error", [OSError("no network"), ValueError("could not convert"), EOFError("torn")])
def test_a_dataset_that_cannot_be_read_leaves_nothing(tmp_path: Path, error: Exception) -> None:
    ranked = RankedDocuments(("q1", "owls", 1.0), error)
    name = register(f"glow-torn/{type(error).__name__}", Docs(), Queries(), Qrels(), ranked)
    with pytest.raises(InputError, match=f"cannot read the candidates: {error}"):
        fetch([name], tmp_path / "out")
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="none of the dataset's 1 documents"):
        fetch(
            [register(f"{name}-none", Docs([Page("x", "", "", 1, ())]), Queries(), Qrels())], tmp_path / "out"
        )


def test_what_a_killed_call_left_is_removed(registered: str, tmp_path: Path) -> None:
    left = tmp_path / ".out-abcdefgh"
    left.mkdir()
    (left / "corpus.jsonl").touch()
    (tmp_path / ".out-of-the-way").mkdir()
    fetch([registered], tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out-of-the-way", "out"]


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
