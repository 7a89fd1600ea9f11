"""Small files of exactly the format of MS MARCO's released ones, with every fault that a line may have."""

import gzip
from pathlib import Path

from glow.schema import FieldSchema, FieldSpec

SCHEMA = FieldSchema(
    name="all",
    query_tokens=20,
    document_tokens=188,
    fields=(
        FieldSpec(name="url", tokens=30, kind="url"),
        FieldSpec(name="title", tokens=30),
        FieldSpec(name="text", tokens=128),
    ),
)
GOOD = [
    b"D1555982\thttps://example.org/bees\tBees \xe2\x80\x93 a title\tBees find home by the sun.\n",
    b"D301595\thttp://example.org/hives\t\tHives are warm.\n",
    b"D7\thttp://example.org/empty\t\t\n",
    b"D42\thttp://example.org/wax\tWax\tWax is made by young bees.\n",
]
DOCUMENTS = [
    GOOD[0],
    b"D8\thttp://example.org/no-body\tOnly three columns\n",
    GOOD[1],
    b"D9\thttp://example.org/bytes\tBad \xff byte\tbody\n",
    GOOD[2],
    b"\thttp://example.org/no-id\ttitle\tbody\n",
    b"D10\t\t \t\n",
    b"D42x\tu\tt\tb\ttoo many\n",
    GOOD[3],
    b"D7\thttp://example.org/again\tSeen before\tbody\n",
    b"D500\tu\tt\tb\n",
    b"D501\tu\tt\tb\n",
    b"D502\tu\tt\tb\n",
]
QUERIES = b"174249\tdoes xpress bet charge\n320792\thow much is a hive\n1090270\tbotulinum \xc3\xa9\nbroken line\n5\tnot judged\n"
QRELS = b"320792 0 D301595 1\n174249 0 D1555982 1\n174249 0 D999 1\n77 0 D7 1\n1090270 0 D42 0\nbroken\n"


def run_line(query: str, document: str, rank: int) -> str:
    """A line of the run of candidates."""
    return f"{query} Q0 {document} {rank} -{5 + rank / 10:.5f} IndriQueryLikelihood\n"


RUN = [
    run_line("174249", "D42", 2),
    run_line("174249", "D1555982", 1),
    run_line("174249", "D404", 3),
    run_line("174249", "D7", 4),
    run_line("320792", "D7", 1),
    "320792 Q0 D42 second -6.1 IndriQueryLikelihood\n",
    run_line("5", "D7", 1),
    run_line("66", "D7", 1),
    run_line("174249", "D301595", 3),
]


def write_folder(tmp_path: Path) -> Path:
    """A folder of all four files."""
    made = tmp_path / "msmarco"
    made.mkdir()
    (made / "msmarco-docs.tsv").write_bytes(b"".join(DOCUMENTS))
    (made / "msmarco-doctrain-queries.tsv.gz").write_bytes(gzip.compress(QUERIES))
    (made / "msmarco-doctrain-qrels.tsv").write_bytes(QRELS)
    (made / "msmarco-doctrain-top100.gz").write_bytes(gzip.compress("".join(RUN).encode()))
    return made
