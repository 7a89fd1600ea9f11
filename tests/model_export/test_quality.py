"""The check of a precision judges texts of the data that is given, not words drawn at random."""

import json
from pathlib import Path

import pytest

from glow.collection import read_documents
from glow.runtime import Model
from glow.training.from_model import read_towers
from glow_model_export import parity
from glow_model_export.package import Source
from glow_model_export.quality import check_quality


@pytest.fixture
def data(toy_corpus: Path, tmp_path: Path) -> Path:
    """The toy corpus with a query for each of its first ten documents."""
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_bytes(toy_corpus.read_bytes())
    documents = list(read_documents(toy_corpus, ("title",)))[:10]
    queries = [
        {"_id": f"q{at}", "text": f"about {each.fields['title'][0]}"} for at, each in enumerate(documents)
    ]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)), encoding="utf-8")
    rows = [f"q{at}\t{each.id}\t1" for at, each in enumerate(documents)]
    (folder / "qrels" / "dev.tsv").write_text(
        "\n".join(["query-id\tcorpus-id\tscore", *rows]), encoding="utf-8"
    )
    return folder


def test_quality_is_judged_on_the_texts_that_are_given(
    data: Path, toy_model: Path, toy_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model.open(toy_model)
    source = Source(read_towers(model), model.preprocessor, {}, {})
    documents = list(read_documents(toy_corpus, model.preprocessor.schema.names))[:10]
    monkeypatch.setattr(parity, "_made_up", lambda *_: pytest.fail("words were drawn at random"))
    quality = check_quality(source, "none", data, "dev", ["about bees"], documents)
    assert (quality["data"], quality["queries"]) == ("data", 10)
    assert set(quality["nDCG@10"]) == {"none"}
