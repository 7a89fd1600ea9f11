"""Makes the index that later versions of GLOW must open or refuse: `python tests/make_old_index.py`.

Run it once for each format of index folders, when that format is new; what it wrote for an older one stays as it is. It has
words, columns, passages, reasons and a delta.
"""

import json
import shutil
import tempfile
from pathlib import Path

from typer.testing import CliRunner

from glow.artifact import IndexRoot
from glow.artifact.manifest import FORMAT_VERSION
from glow.cli import app
from glow.index import Index
from glow.index.vectors import SearchParams
from glow_service.search.calls import SearchCall
from glow_service.search.session import SearchSession

DATA = Path(__file__).parent / "data"
QUERIES = ("how do bees find home", "coffee beans", "owls hunt at night", "a zebra in the snow")
CHANGED = (
    {
        "_id": "new/1",
        "title": "Zebras",
        "text": "Zebras have stripes.\nThey graze in the snow of no land.",
        "year": 2030,
    },
    {"_id": "toy/3", "title": "Owls", "text": "Owls sleep by day.", "lang": "en", "year": 2031},
)
LONG = {
    "_id": "long/1",
    "title": "A day",
    "text": "We walk to the river and eat rice. " * 60,
    "lang": "en",
    "year": 2029,
}


def answers(index: Index) -> list[dict[str, object]]:
    """What searches find, and how well."""
    found = []
    for text in QUERIES:
        for retriever in ("dense", "lexical", "hybrid"):
            hits = (
                SearchSession(index, SearchCall(text, 5, 0, 20, SearchParams(), retriever)).run().found.hits
            )
            found.append(
                {
                    "query": text,
                    "retriever": retriever,
                    "ids": [hit.id for hit in hits],
                    "scores": [round(hit.score, 4) for hit in hits],
                }
            )
    return found


def run(*arguments: object) -> None:
    """Runs a command that must succeed."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output


def main() -> None:
    """Builds, changes, and keeps the live version with what it answers."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, model = Path(scratch), DATA / "toy-model"
        lines = (DATA / "toy-corpus.jsonl").read_text().splitlines()
        (folder / "first.jsonl").write_text("\n".join([*lines, json.dumps(LONG)]) + "\n")
        (folder / "changed.jsonl").write_text("".join(json.dumps(each) + "\n" for each in CHANGED))
        (folder / "gone.txt").write_text("toy/1\n")
        root = folder / "root"
        run(
            "build",
            "--input",
            folder / "first.jsonl",
            "--model",
            model,
            "--index-root",
            root,
            "--threads",
            1,
            "--passages",
        )
        run("upsert", "--input", folder / "changed.jsonl", "--model", model, "--index-root", root)
        run("delete", "--input", folder / "gone.txt", "--index-root", root)
        live = IndexRoot(root).current()
        target = DATA / f"index-format-{FORMAT_VERSION}"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(root / live, target / live)
        expected = {"version": live, "answers": answers(Index.open(target / live))}
        (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
