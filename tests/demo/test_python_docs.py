"""The standard library's documentation as documents to search."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

Documents = dict[str, dict[str, Any]]

QUESTIONS = [
    json.loads(line)
    for line in Path(__file__).with_name("questions.jsonl").read_text(encoding="utf-8").splitlines()
]
LIBRARY = "https://docs.python.org/3/library/"

# Title, page and anchor, and a word of the text.
KNOWN = [
    ("str.split", "stdtypes.html#str.split", "separator"),
    ("dict.get", "stdtypes.html#dict.get", "default"),
    ("int", "functions.html#int", "integer"),
    ("open", "functions.html#open", "stream"),
    ("sorted", "functions.html#sorted", "ascending"),
    ("ValueError", "exceptions.html#ValueError", "argument"),
    ("OSError", "exceptions.html#OSError", "I/O"),
    ("datetime.datetime.strptime", "datetime.html#datetime.datetime.strptime", "parsed"),
    ("time.strptime", "time.html#time.strptime", "Parse"),
    ("itertools.chain", "itertools.html#itertools.chain", "iterable"),
    ("os.mkdir", "os.html#os.mkdir", "directory"),
    ("os.remove", "os.html#os.remove", "Remove"),
    ("os.path.join", "os.path.html#os.path.join", "pathname"),
    ("json", "json.html#module-json", "JSON"),
    ("json.loads", "json.html#json.loads", "Deserialize"),
    ("json.JSONDecoder.decode", "json.html#json.JSONDecoder.decode", "Python"),
    ("functools.lru_cache", "functools.html#functools.lru_cache", "Least-recently-used"),
    ("collections.deque", "collections.html#collections.deque", "endpoints"),
    ("collections.abc.Mapping", "collections.abc.html#collections.abc.Mapping", "Mapping"),
    ("zipfile.ZipFile", "zipfile.html#zipfile.ZipFile", "zip"),
    ("subprocess.run", "subprocess.html#subprocess.run", "Run command"),
    ("shutil.rmtree", "shutil.html#shutil.rmtree", "delete"),
    ("pathlib.Path.glob", "pathlib.html#pathlib.Path.glob", "pattern"),
    ("re.sub", "re.html#re.sub", "replac"),
    ("re.Pattern.match", "re.html#re.Pattern.match", "string"),
    ("math.gcd", "math.html#math.gcd", "Greatest Common Divisor"),
    ("random.choice", "random.html#random.choice", "random element"),
    ("hashlib.sha256", "hashlib.html#hashlib.sha256", "sha256"),
    ("socket.socket.recv", "socket.html#socket.socket.recv", "Receive"),
    ("asyncio.run", "asyncio-runner.html#asyncio.run", "coroutine"),
    ("threading.Lock", "threading.html#threading.Lock", "lock"),
    ("argparse.ArgumentParser.add_argument", "argparse.html#argparse.ArgumentParser.add_argument", "option"),
    ("multiprocessing.Pool", "multiprocessing.html#multiprocessing.Pool", "process pool"),
    (
        "logging.handlers.RotatingFileHandler",
        "logging.handlers.html#logging.handlers.RotatingFileHandler",
        "file",
    ),
    (
        "xml.etree.ElementTree.fromstring",
        "xml.etree.elementtree.html#xml.etree.ElementTree.fromstring",
        "XML",
    ),
    ("unittest.TestCase.assertEqual", "unittest.html#unittest.TestCase.assertEqual", "Fail"),
]


def test_it_finds_the_whole_library(documents: Documents) -> None:
    # 7,900 without tkinter, which some systems package apart, and 8,600 with it.
    assert 7_000 <= len(documents) <= 10_000
    kinds = {document["kind"] for document in documents.values()}
    assert kinds == {"module", "class", "exception", "function", "method", "property", "data"}


@pytest.mark.parametrize(("title", "address", "word"), KNOWN)
def test_well_known_objects_have_their_usual_names(
    documents: Documents, title: str, address: str, word: str
) -> None:
    document = documents[title]
    assert document["url"] == LIBRARY + address
    assert word in document["text"]


@pytest.mark.parametrize(
    "title", ["posix.remove", "_io.open", "json.decoder.JSONDecoder", "random.Random.choice"]
)
def test_an_object_has_no_second_document_under_an_internal_name(documents: Documents, title: str) -> None:
    assert title not in documents


def test_records_have_the_agreed_fields(documents: Documents) -> None:
    for title, document in documents.items():
        assert list(document) == [
            "_id",
            "url",
            "title",
            "anchor",
            "clicked_queries",
            "text",
            "kind",
            "module",
        ]
        assert document["_id"] == title and document["text"].strip() and document["clicked_queries"] == []
        assert re.fullmatch(re.escape(LIBRARY) + r"[\w.-]+\.html#[\w.-]+", document["url"])
        assert document["module"] == "builtins" or f"{title}.".startswith(f"{document['module']}.")
        assert title in ("__future__", "os._exit") or "._" not in f".{title}"


def test_ids_are_unique_and_sorted(extraction: subprocess.CompletedProcess[str]) -> None:
    ids = [json.loads(line)["_id"] for line in extraction.stdout.splitlines()]
    assert len(set(ids)) == len(ids)
    assert ids == sorted(ids)


def test_texts_hold_nothing_that_changes_between_runs(documents: Documents) -> None:
    assert not [title for title, document in documents.items() if " at 0x" in document["text"]]


def test_a_method_is_shown_as_it_is_called(documents: Documents) -> None:
    """Neither `self` nor the slash that would be left after it is part of a call."""
    assert documents["str.split"]["text"].startswith("str.split(sep=None, maxsplit=-1)\n\n")
    assert documents["shutil.rmtree"]["text"].startswith("shutil.rmtree(path, ")
    assert documents["zipfile.ZipFile.read"]["text"].startswith("zipfile.ZipFile.read(name, pwd=None)")
    assert documents["pathlib.Path.cwd"]["text"].startswith("pathlib.Path.cwd()")


def test_anchors_are_few_and_mention_their_object(documents: Documents) -> None:
    anchored = [document for document in documents.values() if document["anchor"]]
    assert len(anchored) >= 200
    for document in anchored:
        name = document["title"].rpartition(".")[2]
        assert len(set(document["anchor"])) == len(document["anchor"]) <= 5
        assert all(name in anchor and len(anchor) <= 200 for anchor in document["anchor"])


def test_an_anchor_is_what_another_object_says(documents: Documents) -> None:
    assert "Remove a file (same as remove())." in documents["os.remove"]["anchor"]


def test_the_command_writes_the_same_bytes_every_time(
    extraction: subprocess.CompletedProcess[str], run_python: Any, tmp_path: Path
) -> None:
    """Another hash seed and a file instead of standard output change nothing."""
    result = run_python(
        ["-m", "glow_demo.python_docs", "--out", "new/docs.jsonl"], tmp_path, PYTHONHASHSEED="2"
    )
    assert result.returncode == 0 and result.stdout == ""
    assert (tmp_path / "new/docs.jsonl").read_text(encoding="utf-8") == extraction.stdout


def test_the_command_reports_one_line(
    extraction: subprocess.CompletedProcess[str], documents: Documents
) -> None:
    version = ".".join(map(str, sys.version_info[:3]))
    assert (
        extraction.stderr == f"{len(documents):,} documents from the standard library of Python {version}\n"
    )


def test_modules_that_act_on_import_are_not_imported(run_python: Any, tmp_path: Path) -> None:
    code = (
        "import sys, glow_demo.python_docs as d; list(d.python_documents());"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    result = run_python(["-c", code], tmp_path)
    loaded = set(result.stdout.split())
    assert "json" in loaded
    assert not loaded & {
        "antigravity",
        "this",
        "idlelib",
        "turtledemo",
        "turtle",
        "tkinter",
        "lib2to3",
        "test",
    }


def test_there_are_thirty_different_questions() -> None:
    questions = {entry["question"] for entry in QUESTIONS}
    assert len(QUESTIONS) == len(questions) == 30
    assert questions >= {
        "parse a date from a string",
        "remove a directory and everything in it",
        "run a command and capture its output",
        "least recently used cache",
        "read a zip file",
    }


@pytest.mark.parametrize("entry", QUESTIONS, ids=lambda entry: entry["question"])
def test_every_accepted_answer_is_a_document(documents: Documents, entry: dict[str, Any]) -> None:
    assert entry["answers"] and not set(entry["answers"]) - set(documents)
