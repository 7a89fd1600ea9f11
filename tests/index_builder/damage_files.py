"""Damaged files of documents, each read to its end or its error: a program, because a signal must not end the tests.

    python -m tests.index_builder.damage_files SCRATCH FORMAT COUNT

writes how many files ended in which way, as JSON. A file's damage follows from its number.
"""

import json
import random
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow
import pyarrow.parquet

from glow.errors import InputError, RecordError
from glow_index_builder.input.files import file_lines
from glow_index_builder.input.source import open_sources
from glow_index_builder.input.tables import arrow_rows, parquet_rows

FORMATS = ("arrow", "arrows", "parquet", "csv", "jsonl", "html", "md")
ROWS = [
    {"_id": f"d{number}", "title": "bees and ants" * (number % 5), "tags": ["a", "b"] * (number % 3), "size": number}
    for number in range(100)
]  # fmt: skip
PAGE = (
    "---\ntitle: a\n---\n# Bees\n\n<p>They <b>dance</b></p>\n\n| a | b |\n|---|---|\n| 1 | [x](y) |\n\n" * 5
)


def whole_file(folder: Path, kind: str) -> bytes:
    path = folder / f"good.{kind}"
    table = pyarrow.Table.from_pylist(ROWS)
    if kind == "parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=40)
    elif kind in ("arrow", "arrows"):
        table = table.append_column("kind", pyarrow.array(["x", "y"] * 50).dictionary_encode())
        opened = pyarrow.ipc.new_stream if kind == "arrows" else pyarrow.ipc.new_file
        with pyarrow.OSFile(str(path), "wb") as sink, opened(sink, table.schema) as out:
            out.write_table(table, max_chunksize=40)
    elif kind == "csv":
        path.write_text("_id,text\n" + "".join(f'd{number},"bees, ""ants"""\n' for number in range(100)))
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        path.write_text(PAGE)
    return path.read_bytes()


def rows_of(path: Path, kind: str) -> Iterable[object]:
    if kind in ("html", "md"):
        place = {"name": path.name, "path": str(path), "size": path.stat().st_size}
        yield from file_lines({**place, "modified": "", "base_url": "", "max_line_bytes": 1_000})
    elif kind in ("csv", "jsonl"):
        for source in open_sources(str(path)):
            yield from source.lines(1_000)
    else:
        with path.open("rb") as file:
            if kind == "parquet":
                yield from parquet_rows(file, path.name, 1_000)
            else:
                yield from arrow_rows(file, path.name, 1_000, is_stream=kind == "arrows")


def main() -> None:
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    whole, ends = whole_file(folder, kind), Counter[str]()
    for number in range(int(sys.argv[3])):
        chance = random.Random(number)  # noqa: S311 - damage that can be made again
        data = bytearray(whole)
        for _ in range(chance.choice((1, 3))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path = folder / f"bad-{number}.{kind}"
        path.write_bytes(data)
        try:
            list(rows_of(path, kind))
            ends["read"] += 1
        except (InputError, RecordError) as error:
            ends["refused"] += 1
            assert "\n" not in str(error) and len(str(error)) < 1_000, str(error)
        path.unlink()
    print(json.dumps(ends))  # noqa: T201 - a program


if __name__ == "__main__":
    main()
