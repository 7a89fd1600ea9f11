"""Damaged files of documents, each read to its end or its error: a program, because a signal must not end the tests.

    python -m tests.index_builder.damage_files SCRATCH FORMAT FIRST LAST

writes how many files ended in which way, as JSON. A file's damage follows from its number.
"""

import json
import random
import sys
from collections import Counter
from pathlib import Path

import pyarrow
import pyarrow.parquet

from glow.errors import InputError, RecordError
from glow_index_builder.input.files import file_lines
from glow_index_builder.input.source import open_sources
from glow_index_builder.input.tables import arrow_rows, parquet_rows

__all__ = ["FORMATS"]

FORMATS = ("arrow", "arrows", "parquet", "csv", "jsonl", "html", "md")
ROWS = [
    {"_id": f"d{number}", "title": "bees and ants" * (number % 5), "tags": ["a", "b"] * (number % 3), "size": number}
    for number in range(100)
]  # fmt: skip
PAGE = (
    "---\ntitle: a\n---\n# Bees\n\n<p>They <b>dance</b></p>\n\n| a | b |\n|---|---|\n| 1 | [x](y) |\n\n" * 5
)


def good(folder: Path, kind: str) -> bytes:
    """A whole file."""
    path = folder / f"good.{kind}"
    table = pyarrow.Table.from_pylist(ROWS)
    if kind == "parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=40)
    elif kind in ("arrow", "arrows"):
        kept = table.append_column("kind", pyarrow.array(["x", "y"] * 50).dictionary_encode())
        new = pyarrow.ipc.new_stream if kind == "arrows" else pyarrow.ipc.new_file
        with (
            pyarrow.OSFile(str(path), "wb") as sink,
            new(sink, table.schema if kind == "x" else kept.schema) as out,
        ):
            out.write_table(kept, max_chunksize=40)
    elif kind == "csv":
        path.write_text("_id,text\n" + "".join(f'd{number},"bees, ""ants"""\n' for number in range(100)))
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        path.write_text(PAGE)
    return path.read_bytes()


def read(path: Path) -> None:
    """Every row, in this process."""
    kind = path.suffix[1:]
    if kind in ("html", "md"):
        request = {
            "name": path.name,
            "path": str(path),
            "size": path.stat().st_size,
            "modified": "",
            "base_url": "",
            "max_line_bytes": 1_000,
        }
        list(file_lines(request))
    elif kind in ("arrow", "arrows", "parquet"):
        with path.open("rb") as file:
            is_stream = kind == "arrows"
            rows = (
                parquet_rows(file, path.name, 1_000)
                if kind == "parquet"
                else arrow_rows(file, path.name, 1_000, is_stream=is_stream)
            )
            list(rows)
    else:
        for source in open_sources(str(path)):
            list(source.lines(1_000))


def main() -> None:
    """Damages and reads the files of some numbers."""
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    whole, ends = good(folder, kind), Counter[str]()
    for number in range(int(sys.argv[3]), int(sys.argv[4])):
        chance = random.Random(number)  # noqa: S311 - damage that can be made again
        data = bytearray(whole)
        for _ in range(chance.choice((1, 3))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path = folder / f"bad-{number}.{kind}"
        path.write_bytes(data)
        try:
            read(path)
            ends["read"] += 1
        except (InputError, RecordError) as error:
            ends["refused"] += 1
            assert "\n" not in str(error) and len(str(error)) < 1_000, str(error)
        path.unlink()
    print(json.dumps(ends))  # noqa: T201 - a program


if __name__ == "__main__":
    main()
