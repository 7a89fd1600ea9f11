"""MS MARCO as training data: its released files through ir_datasets' own reader, and the papers' configurations."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from glow.errors import InputError
from glow.schema import FieldSchema
from glow.training.config import TrainConfig
from glow.training.data.dataset import read_collection
from glow.training.negatives.negatives import match_negatives
from glow.training.rerank.candidates import read_candidates

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = {
    "D1555982": "https://example.org/bees\nBees – a title\nBees find home\nby the sun.",
    "D301595": "http://example.org/hives\n\nHives are warm.",
    "D7": "http://example.org/empty\n\n",
    "D42": "http://example.org/wax\nWax\nWax is made by young bees.",
}
QUERIES = "174249\twhere do bees go\n320792\thow warm is a hive\n5\tnot judged\n"
QRELS = "320792 0 D301595 1\n174249 0 D1555982 1\n"
RUN = [
    ("174249", ("D42", "D1555982", "D7")),
    ("320792", ("D301595", "D404", "D42")),
    ("5", ("D7",)),
]


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder that `glow fetch` makes of small files in the format of the released ones."""
    home, out = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("data") / "msmarco"
    docs = (
        f"<DOC>\n<DOCNO>{name}</DOCNO>\n<TEXT>\n{text}\n</TEXT>\n</DOC>\n" for name, text in DOCUMENTS.items()
    )
    ranked = (
        f"{query} Q0 {document} {rank} -{4 + rank / 10:.5f} IndriQueryLikelihood\n"
        for query, documents in RUN
        for rank, document in enumerate(documents, start=1)
    )
    folder = home / "msmarco-document"
    for split in ("train", "dev"):
        (folder / split).mkdir(parents=True)
        (folder / split / "queries.tsv.gz").write_bytes(gzip.compress(QUERIES.encode()))
        (folder / split / "qrels.gz").write_bytes(gzip.compress(QRELS.encode()))
    (folder / "collection.tsv.gz").write_bytes(gzip.compress("".join(docs).encode()))
    (folder / "train" / "ms.run.gz").write_bytes(gzip.compress("".join(ranked).encode()))
    (folder / "dev" / "ms.run.gz").write_bytes(gzip.compress(b"174249 Q0 D42 1 -4.1 x\n"))
    names = ["irds:msmarco-document/train", "irds:msmarco-document/dev"]
    subprocess.run(
        [sys.executable, "-m", "glow", "fetch", *names, "--out", str(out)],
        env=os.environ | {"IR_DATASETS_HOME": str(home)},
        cwd=ROOT,
        check=True,
    )
    return out


def test_documents_queries_and_judgments_are_those_of_the_files(fetched: Path) -> None:
    collection = read_collection(fetched, "train", FieldSchema.preset("glow-msmarco"))
    assert [document.id for document in collection.documents] == list(DOCUMENTS)
    assert collection.documents[0].fields == {
        "url": ("https://example.org/bees",),
        "title": ("Bees – a title",),
        "text": ("Bees find home\nby the sun.\n",),
    }
    assert collection.queries == ["how warm is a hive", "where do bees go"]
    assert collection.relevant == [{1}, {0}]
    assert read_collection(fetched, "dev", FieldSchema.preset("glow-msmarco")).relevant == [{1}, {0}]


@pytest.mark.parametrize("fields", ["glow-msmarco", "bison-msmarco"])
def test_the_top_100_are_candidates_and_hard_negatives(fetched: Path, fields: str) -> None:
    collection = read_collection(fetched, "train", FieldSchema.preset(fields), most_bytes=0)
    assert match_negatives([fetched / "negatives" / "train.jsonl"], [collection]) == [[(3,), (3, 2)]]
    candidates = read_candidates(fetched / "candidates" / "train.run", collection, depth=2)
    assert [rows.tolist() for rows in candidates.rows] == [[1, 3], [3, 0]]
    assert candidates.scores[1].tolist() == pytest.approx([-4.1, -4.2])


def test_a_folder_of_the_released_files_is_refused_with_the_command_that_helps(tmp_path: Path) -> None:
    (tmp_path / "msmarco-docs.tsv.gz").touch()
    with pytest.raises(InputError, match="glow fetch irds:msmarco-document/train --out DIR"):
        read_collection(tmp_path, "train", FieldSchema.preset("glow-msmarco"))


@pytest.mark.parametrize(
    ("name", "fields"), [("bison", ("url", "title")), ("glow", ("url", "title", "text"))]
)
def test_the_papers_configurations_are_valid_and_read_their_fields(
    name: str, fields: tuple[str, ...]
) -> None:
    config = TrainConfig.load_toml(ROOT / "research" / "papers" / f"msmarco-doc-{name}.toml")
    schema = FieldSchema.preset(config.fields)
    assert schema.names == fields
    assert schema.query_tokens == 20
    assert [spec.tokens for spec in schema.fields] == [30, 30, 128][: len(fields)]
    assert (config.objective.kind, config.towers.weight_side) == ("bce", "row")
