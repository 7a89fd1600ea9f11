"""Changes every file of a model and of an index again and again: each time it is refused by its name, or does no harm.

    python -m tests.lifecycle.damage --index-root INDEX_ROOT --count 500
    python -m tests.lifecycle.damage --index-root INDEX_ROOT --only states/,learned/ [--share 0.1]

The first changes a bit, a block of zeros, or the length of a seeded file, and opens its folder as a service does: it must be refused.
The second changes files at every field that they have, each entry of a header, numbers of an array, its own header, its bytes, and
gives the version a manifest that fits: what the checksum says of them is right. It is then opened and searched.

What counts as a fault: it opens although it differs from its manifest; an error that is none of ours or does not name the file; a
hit without an id or a score; five seconds for one search; the end of the process. Writes one JSON line with the counts; exit
status 1 for any fault.
"""

import io
import json
import os
import random
import shutil
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from glow.artifact import IndexRoot, default_model
from glow.errors import ArtifactError
from glow.index import Index
from glow.index.learned_sparse import LEARNED_SPARSE, LEARNED_WORDS_FOLDER, WordSide
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.runtime import Model
from glow.search import Reranking, attended_words, rank_dense, rank_hybrid, rank_lexical, rerank
from tests.asked import asked_of
from tests.attacks.harness import peak_mb
from tests.search.test_index import remake

BLOCK = 512


def damage(original: bytes, how: str, chance: random.Random) -> bytes:
    place = chance.randrange(len(original)) if original else 0
    changed = bytearray(original)
    if how == "flip" and original:
        changed[place] ^= 1 << chance.randrange(8)
    elif how == "zeros" and original:
        changed[place : place + BLOCK] = bytes(len(changed[place : place + BLOCK]))
    elif how == "cut" and original:
        del changed[place:]
    else:
        changed += chance.randbytes(1 + place % BLOCK)
    return bytes(changed)


def damages(index: Path, model: Path, count: int, chance: random.Random) -> dict[str, Any]:
    """Damages, opens, mends; each must be refused by name."""
    opens: dict[Path, Callable[[Path], object]] = {index: Index.open, model: Model.open}
    places = [
        (folder, name)
        for folder in opens
        for name in ("manifest.json", *json.loads((folder / "manifest.json").read_bytes())["files"])
    ]
    kinds: Counter[str] = Counter()
    faults: list[str] = []
    while kinds.total() < count:
        folder, name = chance.choice(places)
        how, original = (
            chance.choice(("flip", "flip", "zeros", "cut", "longer")),
            (folder / name).read_bytes(),
        )
        changed = damage(original, how, chance)
        if changed == original:
            continue
        (folder / name).write_bytes(changed)
        kinds[how] += 1
        try:
            opens[folder](folder)
            faults.append(f"{how} in {name}: it was opened")
        except ArtifactError as error:
            faults += [] if name in str(error) else [f"{how} in {name}: does not name it: {error}"]
        except Exception as error:
            faults.append(f"{how} in {name}: not an error of ours: {type(error).__name__}: {error}")
        (folder / name).write_bytes(original)
    for folder, open_it in opens.items():
        open_it(folder)  # mended, it is sound: what was refused was refused for the damage
    return {"damages": count, "kinds": dict(kinds), "files": len(places), "faults": faults}


SLOW_S = 5.0
NAMED = {
    "term representations",
    "term statistics",
    "stored documents",
    "columns/",
    "reranker/",
    "of its base",
}
"""What a message says of several files together."""
Edit = tuple[str, bytes]
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 3, 4, 8, 16, 31, 32, 33, 255, 10**6, 2**31, 2**32, 2**63, 2**64, 10**400, 0.5, -1e308, 1e308,
    "", "x", "x" * 100_000, [], {}, [1], {"unit": 1e300, "budget": 1}, {"unit": 1e-300, "budget": 1e300},
)  # fmt: skip
ODD_SHAPES = "() (0,) (1,) (2**62,) (10**12,) (-1,) (3,5) (0,2**60) ('a',) None".split()
ODD_KINDS = (
    "'|O'", "'<f8'", "'>i8'", "'|u1'", "'<U9'", "'|V0'", "[]", "[('a', '<i8')]", "'x'", "0", "-" * 9_000 + "1", "(" * 90 + ")" * 90,
)  # fmt: skip
QUESTIONS = ("how do bees find their way home", "honey bread water honey", "zzz")


def edits(path: Path, chance: random.Random) -> Iterator[Edit]:
    whole = path.read_bytes()
    match path.suffix:
        case ".json":
            yield from _of_json(json.loads(whole))
        case ".npy":
            yield from _of_array(whole, chance)
        case ".sqlite":
            yield from _of_store(whole, path)
    for count in sorted({0, 1, len(whole) // 2, max(len(whole) - 1, 0)}):
        yield f"cut to {count}", whole[:count]
    yield "longer", whole + b"\0"
    for other in sorted(path.parent.iterdir()):
        if other.is_file() and other != path:
            yield f"swapped for {other.name}", other.read_bytes()
    for _ in range(12 if whole else 0):
        changed = bytearray(whole)
        for _ in range(chance.choice((1, 3))):
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        yield "flipped", bytes(changed)


def _of_json(header: dict[str, Any]) -> Iterator[Edit]:
    for name in header:
        for value in ODD:
            yield f"{name} = {value!r:.30}", json.dumps({**header, name: value}).encode()
        yield f"no {name}", json.dumps({key: value for key, value in header.items() if key != name}).encode()
    yield "one more", json.dumps({**header, "more": 1}).encode()
    yield "deep", b"[" * 100_000 + b"]" * 100_000
    yield "NaN", json.dumps({**header, next(iter(header)): float("nan")}).encode()


def _of_array(whole: bytes, chance: random.Random) -> Iterator[Edit]:
    array = np.load(io.BytesIO(whole), allow_pickle=False)
    flat = array.reshape(-1)
    if np.issubdtype(array.dtype, np.floating):
        values: list[Any] = [0, -1, np.nan, np.inf, np.finfo(array.dtype).max, np.finfo(array.dtype).tiny]
    else:
        bounds = np.iinfo(array.dtype)
        sizes = (each for each in (array.size, array.size + 1) if each < bounds.max)
        values = [0, 1, bounds.min, bounds.max, *sizes]
    for place in sorted({0, len(flat) - 1, *(chance.randrange(max(len(flat), 1)) for _ in range(2))}):
        for value in values if len(flat) else ():
            changed = flat.copy()
            changed[place] = value
            yield f"[{place}] = {value}", _saved(changed.reshape(array.shape))
    yield "backwards", _saved(array[::-1].copy())
    yield "all alike", _saved(np.full_like(array, flat[-1] if len(flat) else 0))
    yield "one less", _saved(array[:-1])
    yield "as float64", _saved(array.astype(np.float64))
    header = whole[10 : 10 + int.from_bytes(whole[8:10], "little")].decode("latin-1").strip()
    shape, kind = f"{array.shape!r}", f"{np.lib.format.dtype_to_descr(array.dtype)!r}"
    for odd in ODD_SHAPES:
        yield f"shape {odd}", _with_header(header.replace(shape, odd), whole)
    for odd in ODD_KINDS:
        yield f"kind {odd:.20}", _with_header(header.replace(kind, odd), whole)
    for odd in ("", "{}", "x" * 60_000, "{'descr': __import__('os').abort()}"):
        yield f"header {odd:.20}", _with_header(odd, whole)


STATEMENTS = (
    "UPDATE documents SET fields = '{'", "UPDATE documents SET fields = '[]' WHERE row = 3", "UPDATE documents SET fields = '{\"text\": [1]}'",
    "UPDATE documents SET fields = '{\"text\": 5}'", "UPDATE documents SET metadata = '5'", "UPDATE documents SET metadata = 'NaN'",
    "UPDATE documents SET fields = replace(hex(zeroblob(50000)), '00', '[')", "UPDATE documents SET fields = CAST(x'ff22' AS TEXT)",
    "UPDATE documents SET row = row + 1000", "UPDATE documents SET row = -row - 1", "UPDATE documents SET id = '' WHERE row = 0",
    "DELETE FROM documents WHERE row = 7", "DROP TABLE documents", "ALTER TABLE documents ADD COLUMN more TEXT",
    "ALTER TABLE documents RENAME TO others; CREATE VIEW documents AS WITH RECURSIVE n(row) AS (SELECT 0 UNION ALL SELECT row FROM n) "
    "SELECT row, '' AS id, '{}' AS fields, '{}' AS metadata FROM n",
)  # fmt: skip


def _of_store(whole: bytes, path: Path) -> Iterator[Edit]:
    for statement in STATEMENTS:
        copy = path.with_name("copy.sqlite")
        copy.write_bytes(whole)
        with closing(sqlite3.connect(copy)) as connection:
            connection.executescript(statement)
        content = copy.read_bytes()
        copy.unlink()
        yield statement, content


def _saved(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _with_header(text: str, whole: bytes) -> bytes:
    body = whole[10 + int.from_bytes(whole[8:10], "little") :]
    data = text.encode("latin-1") + b"\n"
    return whole[:8] + len(data).to_bytes(2, "little") + data + body


def search(index: Index) -> None:
    """Every way to search by what may be damaged, and everything that is then read of the hits."""
    for question in QUESTIONS:
        vector = index.encoder.run([index.preprocessor.query(question)])[0]
        found = [rank_dense(index, vector, 10)]
        if index.holds(POSTINGS):
            found += [rank_lexical(index, question, 10), rank_hybrid(index, asked_of(index, question), 10)]
        words = index.preprocessor.pieces.words(question)
        if index.holds(LEARNED_SPARSE):
            found.append(rank_lexical(index, question, 10, by="learned"))
            index[LEARNED_SPARSE].by_word(words, found[-1].rows)
            for row in found[-1].rows.tolist():
                index[LEARNED_SPARSE].expansions(words, row)
        if index.reranker is not None:
            found += [rerank(index, question, each, Reranking(10))[0] for each in found[:3]]
        for ranked in found:
            documents = index[STORED_FIELDS].rows(ranked.rows.tolist())
            assert all("text" in each.fields for each in documents)
            assert np.isfinite(ranked.scores).all(), f"scores {ranked.scores}"
            assert (np.diff(ranked.scores) <= 0).all()
        if index.reranker is not None:
            rows = found[0].rows.tolist()
            attended_words(index, question, rows, [None] * len(rows), index[STORED_FIELDS].rows(rows))
    list(index[STORED_FIELDS].scan())
    list(index.base[STORED_FIELDS].metadata())


def use(folder: Path) -> None:
    """Opens a version and searches it; what only a delta reads is read too."""
    search(Index.open(folder))
    if (folder / LEARNED_WORDS_FOLDER).is_dir():
        side = WordSide.load(folder / LEARNED_WORDS_FOLDER)
        assert np.isfinite(side.directions).all() and len(side.words) == len(side.weights)


def outcome(folder: Path, name: str, content: bytes) -> str:
    """Changes one file of a version, uses the version, mends it: `answered`, `refused`, or what is wrong with that."""
    path, manifest = folder / name, folder / "manifest.json"
    kept = {each: each.read_bytes() for each in (path, manifest)}
    # Written anew: what is mapped by an index that was opened before stays as it was.
    path.unlink()
    path.write_bytes(content)
    try:
        remake(folder)
        use(folder)
    except ArtifactError as error:
        # Where two files do not fit each other, either is named.
        told = {Path(each).name for each in json.loads(kept[manifest])["files"]} | NAMED
        return "refused" if any(part in str(error) for part in told) else f"names no file: {error}"
    except Exception as error:
        return f"not an error of ours: {type(error).__name__}: {error}"
    finally:
        for each, data in kept.items():
            each.unlink()
            each.write_bytes(data)
    return "answered"


def edited(folder: Path, only: str, share: float, chance: random.Random) -> dict[str, Any]:
    """Changes, opens, searches, mends; what fits its manifest is refused by name or searched."""
    counts: Counter[str] = Counter()
    faults: list[str] = []
    files = json.loads((folder / "manifest.json").read_bytes())["files"]
    for name in sorted(each for each in files if each.startswith(tuple(only.split(",")))):
        for how, content in edits(folder / name, chance):
            if chance.random() >= share or content == (folder / name).read_bytes():
                continue
            started = time.monotonic()
            found = outcome(folder, name, content)
            seconds = time.monotonic() - started
            is_fault = found not in ("answered", "refused") or seconds > SLOW_S
            counts["fault" if is_fault else found] += 1
            if is_fault:
                faults.append(f"{name}, {how}: {found} in {seconds:.1f} s")
    use(folder)  # mended, it is sound: what was refused was refused for the change
    return {**counts, "faults": faults[:20], "peak_mb": peak_mb(os.getpid())}


def main(
    index_root: Annotated[Path, typer.Option(help="Index root; its live version is copied.")],
    model: Annotated[Path | None, typer.Option(help="Model folder; default: models/DEFAULT's.")] = None,
    count: Annotated[int, typer.Option(help="Damages.")] = 500,
    only: Annotated[str, typer.Option(help="Files to edit instead: how their names begin, by commas.")] = "",
    share: Annotated[float, typer.Option(help="Of the edits, drawn by the seed.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of files, places and kinds.")] = 0,
) -> None:
    """Changes files of copies."""
    chance = random.Random(seed)  # noqa: S311 - chooses what to break, keeps no secret
    source = IndexRoot(index_root)
    with tempfile.TemporaryDirectory() as scratch:
        index = Path(shutil.copytree(source.folder(source.current()), Path(scratch) / source.current()))
        if only:
            report = edited(index, only, share, chance)
        else:
            given = model or default_model()
            report = damages(index, Path(shutil.copytree(given, Path(scratch) / given.name)), count, chance)
    typer.echo(json.dumps(report))
    raise typer.Exit(1 if report["faults"] else 0)


if __name__ == "__main__":
    typer.run(main)
