"""The standard library's documentation as documents to search."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from glow_demo.anchors import MAX_ANCHORS, collect_anchors
from glow_demo.entries import Entry
from glow_demo.source_objects import source_entries

Documents = dict[str, dict[str, Any]]
ROOT = Path(__file__).parents[2]
LIBRARY = "https://docs.python.org/3/library/"
QUESTIONS = [
    json.loads(line)
    for line in Path(__file__).with_name("questions.jsonl").read_text(encoding="utf-8").splitlines()
]
# Title, page and anchor, and a word of the text.
KNOWN = """
str.split stdtypes.html#str.split separator
open functions.html#open stream
ValueError exceptions.html#ValueError argument
datetime.datetime.strptime datetime.html#datetime.datetime.strptime parsed
itertools.chain itertools.html#itertools.chain iterable
os.remove os.html#os.remove Remove
os.path.join os.path.html#os.path.join pathname
json json.html#module-json JSON
json.JSONDecoder.decode json.html#json.JSONDecoder.decode Python
functools.lru_cache functools.html#functools.lru_cache Least-recently-used
collections.deque collections.html#collections.deque endpoints
collections.abc.Mapping collections.abc.html#collections.abc.Mapping Mapping
shutil.rmtree shutil.html#shutil.rmtree delete
pathlib.Path.glob pathlib.html#pathlib.Path.glob pattern
re.Pattern.match re.html#re.Pattern.match string
random.choice random.html#random.choice element
hashlib.sha256 hashlib.html#hashlib.sha256 sha256
socket.socket.recv socket.html#socket.socket.recv Receive
asyncio.run asyncio-runner.html#asyncio.run coroutine
threading.Lock threading.html#threading.Lock lock
multiprocessing.Pool multiprocessing.html#multiprocessing.Pool pool
xml.etree.ElementTree.fromstring xml.etree.elementtree.html#xml.etree.ElementTree.fromstring XML
"""


def run_python(arguments: list[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python from another folder, the repository on its path."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"} | environment
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def extraction(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """One run of the command to standard output, with a browser that would leave a trace."""
    folder = tmp_path_factory.mktemp("demo")
    browser = folder / "browser"
    browser.write_text(f"#!/bin/sh\ntouch {folder}/opened\n", encoding="utf-8")
    browser.chmod(0o755)
    result = run_python(["-m", "glow_demo.python_docs"], folder, BROWSER=str(browser), PYTHONHASHSEED="1")
    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["browser"], "the run left files behind"
    return result


@pytest.fixture(scope="module")
def documents(extraction: subprocess.CompletedProcess[str]) -> Documents:
    """The documents by title."""
    records = [json.loads(line) for line in extraction.stdout.splitlines()]
    return {record["title"]: record for record in records}


def test_it_finds_the_whole_library_under_its_usual_names(documents: Documents) -> None:
    # 7,900 without tkinter, which some systems package apart, and 8,600 with it.
    assert 7_000 <= len(documents) <= 10_000
    kinds = {document["kind"] for document in documents.values()}
    assert kinds == {"module", "class", "exception", "function", "method", "property", "data"}
    for title, address, word in map(str.split, KNOWN.strip().splitlines()):
        assert documents[title]["url"] == LIBRARY + address
        assert word in documents[title]["text"], title
    internal = {"posix.remove", "_io.open", "json.decoder.JSONDecoder", "random.Random.choice"}
    assert not internal & documents.keys(), "an object has no second document"


def test_records_have_the_agreed_fields(documents: Documents) -> None:
    names = "_id url title anchor clicked_queries text kind module".split()
    for title, document in documents.items():
        assert list(document) == names
        assert document["_id"] == title and document["text"].strip() and document["clicked_queries"] == []
        assert re.fullmatch(re.escape(LIBRARY) + r"[\w.-]+\.html#[\w.-]+", document["url"])
        assert document["module"] == "builtins" or f"{title}.".startswith(f"{document['module']}.")
        assert title in ("__future__", "os._exit") or "._" not in f".{title}"
        assert " at 0x" not in document["text"], "it would change between runs"


def test_a_method_is_shown_as_it_is_called(documents: Documents) -> None:
    """Neither `self` nor the slash that would be left after it is part of a call."""
    assert documents["str.split"]["text"].startswith("str.split(sep=None, maxsplit=-1)\n\n")
    assert documents["shutil.rmtree"]["text"].startswith("shutil.rmtree(path, ")
    assert documents["zipfile.ZipFile.read"]["text"].startswith("zipfile.ZipFile.read(name, pwd=None)")
    assert documents["pathlib.Path.cwd"]["text"].startswith("pathlib.Path.cwd()")


def test_anchors_are_few_and_what_other_objects_say_of_theirs(documents: Documents) -> None:
    anchored = [document for document in documents.values() if document["anchor"]]
    assert len(anchored) >= 200
    for document in anchored:
        name = document["title"].rpartition(".")[2]
        assert len(set(document["anchor"])) == len(document["anchor"]) <= 5
        assert all(name in anchor and len(anchor) <= 200 for anchor in document["anchor"])
    assert "Remove a file (same as remove())." in documents["os.remove"]["anchor"]


def test_the_command_writes_the_same_sorted_lines_every_time_and_imports_nothing_that_acts(
    extraction: subprocess.CompletedProcess[str], documents: Documents, tmp_path: Path
) -> None:
    """Another hash seed and a file instead of standard output change nothing."""
    ids = [json.loads(line)["_id"] for line in extraction.stdout.splitlines()]
    assert ids == sorted(set(ids))
    version = ".".join(map(str, sys.version_info[:3]))
    told = f"{len(documents):,} documents from the standard library of Python {version}\n"
    assert extraction.stderr == told
    code = (
        "import sys; from glow_demo.python_docs import main; main(['--out', 'new/docs.jsonl']);"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    result = run_python(["-c", code], tmp_path, PYTHONHASHSEED="2")
    assert (tmp_path / "new/docs.jsonl").read_text(encoding="utf-8") == extraction.stdout
    loaded = set(result.stdout.split())
    assert "json" in loaded
    assert not loaded & set("antigravity this idlelib turtledemo turtle tkinter lib2to3 test".split())


def test_every_accepted_answer_of_thirty_different_questions_is_a_document(documents: Documents) -> None:
    assert len(QUESTIONS) == len({entry["question"] for entry in QUESTIONS}) == 30
    for entry in QUESTIONS:
        assert entry["answers"] and not set(entry["answers"]) - set(documents), entry["question"]


def _entry(title: str, doc: str = "", kind: str = "function") -> Entry:
    return Entry(title, title, kind, title.rpartition(".")[0], "()", doc)


@pytest.mark.parametrize(
    ("said", "others", "meant"),
    [
        ("Like b.move but slow.", "b.move c.move", "b.move"),
        # The nearest scope comes first, and a name that may mean two objects means none.
        ("Same as load().", "a.load b.load", "a.load"),
        ("Same as load().", "b.load c.load", None),
        # English words are no names.
        ("Return a list of open files.", "open list", None),
        ("Return a SmartDict.", "b.SmartDict", "b.SmartDict"),
        ("save() saves; a.C.save is its name.", "", None),
    ],
)
def test_which_object_a_name_in_running_text_means(said: str, others: str, meant: str | None) -> None:
    entries = [_entry(name, kind="class" if "Dict" in name else "function") for name in others.split()]
    assert collect_anchors([_entry("a.C.save", said), *entries]) == ({meant: [said]} if meant else {})


def test_anchors_are_bounded_and_different() -> None:
    entries = [_entry(f"a.f{i}", f"Number {i // 2} of go().") for i in range(30)]
    anchors = collect_anchors([*entries, _entry("b.go")])
    assert len(set(anchors["b.go"])) == len(anchors["b.go"]) == MAX_ANCHORS


SOURCE = '''
"""A module that must never run."""
raise SystemExit("it ran")

__all__ = ["Tool", "fail", "forked"]
__all__ += ["ToolError"]

class _Base:
    def help(self, topic, /, *, deep: bool = False):
        """Explain a topic."""

class Tool(_Base):
    """Does things."""
    def __init__(self, name="t"): ...
    @staticmethod
    def make(size): ...
    @classmethod
    def load(cls): "Load a tool."
    @property
    def size(self): "Its size."
    @property
    def silent(self): ...
    def _hidden(self): "Nobody's business."

class ToolError(ValueError): ...

if FORKS:
    def forked(): ...
else:
    def forked(tries): "Fork a lot."

def fail(): "Fail. Loudly."
def unlisted(): "Public by its name only."
'''


def test_a_modules_names_are_read_from_its_source(tmp_path: Path) -> None:
    source = tmp_path / "m.py"
    source.write_text(SOURCE, encoding="utf-8")
    entries = {entry.title: entry for entry in source_entries("m", source)}
    methods = {f"m.Tool.{name}" for name in ("help", "load", "make", "size")}
    assert set(entries) == {"m", "m.Tool", "m.ToolError", "m.fail", "m.forked", *methods}
    assert entries["m.Tool"].text == "m.Tool(name='t')\n\nDoes things."
    # Members of a private base belong to the public class.
    assert entries["m.Tool.help"].text == "m.Tool.help(topic, /, *, deep: bool=False)\n\nExplain a topic."
    # Only a static method keeps its first parameter.
    assert entries["m.Tool.make"].text == "m.Tool.make(size)"
    assert entries["m.Tool.load"].signature == "()"
    assert entries["m.ToolError"].kind == "exception"
    assert entries["m.ToolError"].text == "m.ToolError\n\nA subclass of ValueError."
    assert entries["m.forked"].doc == "Fork a lot.", "of two definitions the documented one counts"
    assert entries["m.fail"].summary == "Fail."
