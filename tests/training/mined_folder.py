"""A collection to mine negatives from."""

import json
from pathlib import Path

from glow.schema import FieldSchema

SCHEMA = FieldSchema.preset("glow-default")


def write_mined_folder(found: Path, toy_corpus: Path) -> Path:
    """The toy corpus and a twin of its first document, with a query of three words from each text."""
    (found / "qrels").mkdir(parents=True)
    documents = [json.loads(line) for line in toy_corpus.read_text(encoding="utf-8").splitlines()]
    documents[1] = {key: value for key, value in documents[1].items() if key != "anchor"}  # it was empty
    documents.append({**documents[0], "_id": "twin", "url": "https://elsewhere.example/"})
    write_lines(found / "corpus.jsonl", documents)
    queries = [
        {"_id": f"q{number}", "text": " ".join(document["text"].split()[1:4])}
        for number, document in enumerate(documents[:50])
    ]
    write_lines(found / "queries.jsonl", [*queries, {"_id": "blank", "text": " "}])
    rows = [f"q{number}\t{document['_id']}\t1" for number, document in enumerate(documents[:50])]
    rows += ["q1\ttoy/2\t2", "q1\ttoy/3\t0", "blank\ttoy/4\t1"]
    text = "\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n"
    (found / "qrels" / "train.tsv").write_text(text, encoding="utf-8")
    return found


def write_lines(path: Path, records: list[dict[str, object]]) -> None:
    """Writes JSON lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
