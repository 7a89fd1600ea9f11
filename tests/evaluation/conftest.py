"""A small judged collection over the toy corpus."""

import shutil
from pathlib import Path

import pytest

QUERIES = {
    "q-bees": "how do bees find home",
    "q-ants": "ants trail of scent to food",
    "q-owls": "soft feathers at night",
    "q-none": "nothing here is relevant",
}
QRELS = {
    "dev": [("q-bees", "toy/0", 1), ("q-ants", "toy/1", 1), ("q-owls", "toy/3", 1)],
    "graded": [("q-bees", "toy/0", 3), ("q-bees", "toy/1", 1), ("q-none", "toy/2", 0)],
}


@pytest.fixture
def toy_data(tmp_path: Path, toy_corpus: Path) -> Path:
    """A BEIR folder with two splits: `dev` and `graded`, where one query has no relevant document."""
    folder = tmp_path / "toy"
    (folder / "qrels").mkdir(parents=True)
    shutil.copy(toy_corpus, folder / "corpus.jsonl")
    lines = [f'{{"_id": "{name}", "text": "{text}"}}\n' for name, text in QUERIES.items()]
    (folder / "queries.jsonl").write_text("".join(lines))
    for split, rows in QRELS.items():
        body = "".join(f"{query}\t{document}\t{grade}\n" for query, document, grade in rows)
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + body)
    return folder
