"""Converts public collections to data directories (docs/data.md): `python -m scripts.convert tldr --source DIR --out DIR`.

The directory gets its name when it is complete. Hashes of texts alone choose the splits.

- `tldr`: a checkout of tldr-pages. `pages/PLATFORM/NAME.md` has a line `# TITLE`, lines `> DESCRIPTION` (one may be `> See also: `a`,
  `b`.`, one `> More information: <URL>.`), and for each example a line `- INTENT:` with a line `` `COMMAND` `` below it. `{{…}}` marks
  a placeholder, `[c]reate` a letter that names an option. Translations (`pages.de`) and pages that only point to another (`alias of`)
  are skipped. A fifth of the intents become their pages' clicked queries, the others queries, to which all pages of the intent are
  relevant. So no page shows the words of a query that it answers.
- `cranfield`: records of SMART begin with `.I NUMBER`, their sections with `.T` (title), `.A` (author), `.B` (citation) and `.W` (text).
  A line of `cranqrel` is `QUERY DOCUMENT GRADE`; it numbers queries by their position in `cran.qry`, from 1, not by the number after
  `.I`. Grades 1 (complete answer) to 4 (minimal) become 1, and -1 becomes 0. There are no training data.
- `medquad`: `NUMBER_NAME/FILE.xml` with `<Document id source url>`, `<Focus>`, `<Synonym>`s and `<QAPair>`s of `<Question qid qtype>`
  and `<Answer>`; three directories have empty answers because of copyright. Its judgments, `QA-TestSet-LiveQA-Med-Qrels-2479-Answers.zip`
  (or the same unpacked), have lines `1 4-Excellent GHR_0000804_Sec1.txt` and a CSV file of `AnswerID,Answer`, whose layout is known
  only from its readers. LiveQA-Med's summaries (`<NLM-QUESTION qid="TQ1">`) are the judged queries. Answers become documents, and
  questions with equal text one query. A judged answer `SOURCE_DOCUMENT_SecN` is the document of that document's Nth question; others
  are added as `x_SOURCE_DOCUMENT_SecN`. Judgments 1 to 4 become grades 0 to 3.
"""

import csv
import hashlib
import io
import json
import re
import shutil
import sys
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self, TextIO
from xml.etree import ElementTree

import typer

from glow.commands import reporting
from glow.errors import InputError, RecordError

app = typer.Typer(add_completion=False)
REJECTS = "rejects.jsonl"
Out = Annotated[Path, typer.Option(help="Data folder to make.")]
HEADER = "query-id\tcorpus-id\tscore\n"


class DataFolder:
    """Writes a data directory; use as a context manager."""

    def __init__(self, out: Path) -> None:
        if out.exists():
            raise InputError(f"{out} exists already; remove it or choose another --out")
        self._out = out
        self._part = out.with_name(f".{out.name}.part")
        self._files: dict[str, TextIO] = {}
        self._ids: dict[str, set[str]] = {"corpus.jsonl": set(), "queries.jsonl": set()}
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        shutil.rmtree(self._part, ignore_errors=True)
        (self._part / "qrels").mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()
        if kind is None and self.counts["documents"] and self.counts["queries"]:
            self._part.rename(self._out)
            return
        shutil.rmtree(self._part)
        if kind is None:
            counts = f"{self.counts['documents']} documents and {self.counts['queries']} queries"
            raise InputError(f"the source holds {counts}; expected some of both: is it the right directory?")

    def add_document(
        self,
        identifier: str,
        text: str,
        url: str = "",
        title: str = "",
        anchor: Sequence[str] = (),
        clicked_queries: Sequence[str] = (),
        **metadata: str,
    ) -> None:
        """Writes one document; a second one with the same id is rejected."""
        record: dict[str, Any] = {"_id": identifier, "url": url, "title": title, "anchor": list(anchor)}
        record |= {"clicked_queries": list(clicked_queries), "text": text, **metadata}
        self._add("corpus.jsonl", "documents", record)

    def add_query(self, identifier: str, text: str) -> None:
        """Writes one query; a second one with the same id is rejected."""
        self._add("queries.jsonl", "queries", {"_id": identifier, "text": text})

    def judge(self, split: str, query: str, document: str, grade: int) -> None:
        """Writes one relevance judgment."""
        file = self._file(f"qrels/{split}.tsv", HEADER)
        file.write(f"{query}\t{document}\t{grade}\n")
        self.counts[f"judgements {split}"] += 1

    def reject(self, file: str, place: str, reason: str, start: str = "") -> None:
        """Records an unusable record: its file, its place (`line 7`, an id), the reason and its start."""
        record = {"file": file, "place": place, "reason": reason, "start": start[:200]}
        self._write(REJECTS, record)
        self.counts["rejects"] += 1

    def summary(self) -> str:
        """The counts in one line."""
        counted = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        return f"{self._out}: {counted}" + (f" (see {REJECTS})" if self.counts["rejects"] else "")

    def _add(self, file: str, kind: str, record: dict[str, Any]) -> None:
        identifier = record["_id"]
        if identifier in self._ids[file]:
            self.reject(file, identifier, f"{kind}: this id occurs before", str(record.get("text", "")))
            return
        self._ids[file].add(identifier)
        self._write(file, record)
        self.counts[kind] += 1

    def _write(self, file: str, record: dict[str, Any]) -> None:
        self._file(file).write(json.dumps(record, ensure_ascii=False) + "\n")

    def _file(self, name: str, header: str = "") -> TextIO:
        if name not in self._files:
            self._files[name] = (self._part / name).open("w", encoding="utf-8", newline="\n")
            self._files[name].write(header)
        return self._files[name]


def collapsed(text: str) -> str:
    """The text with each run of white space replaced by one blank."""
    return " ".join(text.split())


def share(key: str) -> float:
    """A number in [0, 1) that depends only on a key, uniform over keys."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) / 2**64


def split_of(key: str, shares: Sequence[tuple[str, float]]) -> str:
    """The split of a key, chosen by a hash; `splits` has names and fractions that add up to 1."""
    place = share(f"split:{key}")
    for name, size in shares:
        if place < size:
            return name
        place -= size
    return shares[-1][0]


DOCUMENTS, QUERIES, JUDGEMENTS = "cran.all.1400", "cran.qry", "cranqrel"
_START = re.compile(r"\.I\s+(\d+)\s*")
_SECTION = re.compile(r"\.([A-Z])\s*")
_GRADES = {"-1": 0, "1": 1, "2": 1, "3": 1, "4": 1}


def _records(path: Path, folder: DataFolder) -> Iterator[tuple[str, dict[str, str]]]:
    """Number and sections of each record; repeated sections are joined."""
    number, section = "", ""
    sections: dict[str, str] = {}
    for place, line in enumerate(path.read_text(encoding="latin-1").splitlines(), start=1):
        if start := _START.fullmatch(line):
            if number:
                yield number, sections
            number, section, sections = start[1], "", {}
        elif number and (heading := _SECTION.fullmatch(line)):
            section = heading[1]
        elif section:
            sections[section] = f"{sections.get(section, '')}\n{line}"
        elif line.strip():
            folder.reject(
                path.name, f"line {place}", "expected a line .I NUMBER or a section such as .T", line
            )
    if number:
        yield number, sections


def _judge_cranfield(path: Path, folder: DataFolder, documents: set[str], queries: int) -> None:
    for place, line in enumerate(path.read_text(encoding="latin-1").splitlines(), start=1):
        row = line.split()
        if len(row) != 3 or row[2] not in _GRADES:
            reason = "expected a query, a document and a grade of -1 or 1 to 4"
        elif not (row[0].isdigit() and 1 <= int(row[0]) <= queries):
            reason = f"expected a query from 1 to {queries}"
        elif row[1] not in documents:
            reason = "no document has this number"
        else:
            folder.judge("test", str(int(row[0])), row[1], _GRADES[row[2]])
            continue
        if row:
            folder.reject(path.name, f"line {place}", reason, line)


@app.command()
def cranfield(
    source: Annotated[Path, typer.Option(help="Folder of cran.all.1400, cran.qry and cranqrel.")], out: Out
) -> None:
    """Convert the Cranfield collection to a data folder."""
    with reporting():
        missing = [name for name in (DOCUMENTS, QUERIES, JUDGEMENTS) if not (source / name).is_file()]
        if missing:
            raise InputError(
                f"{source} has no {', '.join(missing)}; expected the unpacked files of cran.tar.gz"
            )
        with DataFolder(out) as folder:
            documents = set()
            for number, sections in _records(source / DOCUMENTS, folder):
                parts = {key: collapsed(text) for key, text in sections.items()}
                anchor = [parts["B"]] if parts.get("B") else []
                title, author = parts.get("T", ""), parts.get("A", "")
                folder.add_document(number, parts.get("W", ""), title=title, anchor=anchor, author=author)
                documents.add(number)
            queries = [collapsed(sections.get("W", "")) for _, sections in _records(source / QUERIES, folder)]
            for place, text in enumerate(queries, start=1):
                folder.add_query(str(place), text)
            _judge_cranfield(source / JUDGEMENTS, folder, documents, len(queries))
        sys.stdout.write(folder.summary() + "\n")


TLDR_SPLITS = (("train", 0.75), ("dev", 0.125), ("test", 0.125))
CLICKED_SHARE = 0.2
MAX_PAGES = 3
MIN_WORDS = 2
_URL = re.compile(r"More information: <([^>]+)>")
_SEE_ALSO = re.compile(r"See also: (.*)")
_NAME = re.compile(r"`([^`]+)`")
_MNEMONIC = re.compile(r"\[(\w+)\]")
_PLACEHOLDER = re.compile(r"\{\{(.*?)\}\}")
_ALIAS = re.compile(r"This command is an alias of ")


@dataclass(frozen=True, slots=True)
class Page:
    """One page, with as many `intents` as `commands`."""

    id: str
    title: str
    url: str
    see_also: tuple[str, ...]
    description: str
    intents: tuple[str, ...]
    commands: tuple[str, ...]


def parse_page(identifier: str, text: str) -> Page:
    """Reads a page."""
    titles: list[str] = []
    quoted: list[str] = []
    intents: list[str] = []
    commands: list[str] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("# "):
            titles.append(line[2:].strip())
        elif line.startswith(">"):
            quoted.append(line[1:].strip())
        elif line.startswith("- "):
            intents.append(collapsed(_MNEMONIC.sub(r"\1", line[2:].rstrip(": "))))
        elif line.startswith("`") and line.endswith("`") and len(commands) < len(intents):
            commands.append(collapsed(_PLACEHOLDER.sub(r"\1", line[1:-1])))
        else:
            raise RecordError(f"expected `# `, `> `, `- ` or a command in backticks, found {line:.60}")
    if len(titles) != 1 or not intents or len(intents) != len(commands):
        counts = f"{len(titles)} titles, {len(intents)} intents and {len(commands)} commands"
        raise RecordError(f"expected one title and as many commands as intents, found {counts}")
    url, see_also, description = _described(quoted)
    return Page(identifier, titles[0], url, see_also, description, tuple(intents), tuple(commands))


def _described(quoted: list[str]) -> tuple[str, tuple[str, ...], str]:
    """The address, the names of `See also`, and the other lines as description."""
    url = ""
    see_also: tuple[str, ...] = ()
    lines = []
    for line in quoted:
        if address := _URL.search(line):
            url = address[1]
        elif names := _SEE_ALSO.match(line):
            see_also = tuple(_NAME.findall(names[1]))
        else:
            lines.append(line.replace("`", ""))
    return url, see_also, collapsed(" ".join(lines))


def _write(pages: list[Page], folder: DataFolder) -> None:
    pages_of: dict[str, list[str]] = defaultdict(list)
    for page in pages:
        for intent in dict.fromkeys(map(str.casefold, page.intents)):
            pages_of[intent].append(page.id)
    for page in pages:
        clicked = []
        for place, intent in enumerate(page.intents):
            identifier = f"tldr-{page.id}-{place}"
            relevant = pages_of[intent.casefold()]
            if share(f"clicked:{intent.casefold()}") < CLICKED_SHARE:
                clicked.append(intent)
            elif len(intent.split()) >= MIN_WORDS and len(relevant) <= MAX_PAGES:
                folder.add_query(identifier, intent)
                split = split_of(intent.casefold(), TLDR_SPLITS)
                for document in relevant:
                    folder.judge(split, identifier, document, 1)
        text = collapsed(f"{page.description} {' ; '.join(page.commands)}")
        folder.add_document(page.id, text, page.url, page.title, page.see_also, clicked)


@app.command()
def tldr(source: Annotated[Path, typer.Option(help="Checkout of tldr-pages/tldr.")], out: Out) -> None:
    """Convert tldr-pages to a data folder."""
    with reporting():
        paths = sorted((source / "pages").glob("*/*.md"))
        if not paths:
            raise InputError(
                f"{source} has no pages/PLATFORM/NAME.md; expected a checkout of tldr-pages/tldr"
            )
        with DataFolder(out) as folder:
            pages = []
            for path in paths:
                name = path.relative_to(source).as_posix()
                try:
                    text = path.read_text(encoding="utf-8")
                    if not _ALIAS.search(text):
                        pages.append(parse_page(f"{path.parent.name}/{path.stem}", text))
                except UnicodeDecodeError as error:
                    folder.reject(name, f"byte {error.start}", "not UTF-8")
                except RecordError as error:
                    folder.reject(name, "page", str(error), text)
            _write(pages, folder)
        sys.stdout.write(folder.summary() + "\n")


MEDQUAD_SPLITS = (("train", 0.8), ("dev", 0.1), ("test", 0.1))
LIVEQA_SPLITS = (("liveqa-dev", 0.5), ("liveqa-test", 0.5))
JUDGED = "QA-TestSet-LiveQA-Med-Qrels-2479-Answers"
MAX_SYNONYMS = 8
_FOLDER = re.compile(r"(\d+)_.+")
_ANSWER_ID = re.compile(r"([A-Za-z]+)_(\w+)_Sec(\d+)(?:\.txt)?")
_ANSWER = re.compile(r"Question:\s*(.*?)\s*URL:\s*(\S+)\s*Answer:\s*(.*)", re.DOTALL)
_ALSO_CALLED = re.compile(r"\s*\(Also called:\s*(.*)\)\s*$", re.DOTALL)
_JUDGEMENT = re.compile(r"([1-4])(?:-\w+)?")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as a document; judgments name it by `key`."""

    id: str
    key: str
    question: str
    title: str
    url: str
    synonyms: tuple[str, ...]
    text: str
    source: str


def _add(answer: Answer, folder: DataFolder) -> None:
    about = (answer.url, answer.title, answer.synonyms)
    folder.add_document(answer.id, answer.text, *about, source=answer.source)


def _answers(source: Path, folder: DataFolder) -> Iterator[Answer]:
    """The non-empty answers of all XML files, with directories and files in order."""
    places = [(int(match[1]), path) for path in source.iterdir() if (match := _FOLDER.fullmatch(path.name))]
    paths = [(number, path) for number, place in sorted(places) for path in sorted(place.glob("*.xml"))]
    if not paths:
        raise InputError(f"{source} has no NUMBER_NAME/FILE.xml; expected a checkout of abachaa/MedQuAD")
    for number, path in paths:
        name = path.relative_to(source).as_posix()
        try:
            document = ElementTree.parse(path).getroot()  # noqa: S314 - entities are bounded by expat 2.4.1
        except ElementTree.ParseError as error:
            folder.reject(name, "file", f"not XML: {error}")
            continue
        yield from _answers_of(document, number, name, folder)


def _answers_of(
    document: ElementTree.Element, number: int, name: str, folder: DataFolder
) -> Iterator[Answer]:
    focus = _text(document.find("Focus"))
    synonyms = tuple(filter(None, map(_text, document.iter("Synonym"))))[:MAX_SYNONYMS]
    for pair in document.iter("QAPair"):
        question, answer = pair.find("Question"), _text(pair.find("Answer"))
        if question is None or not question.get("qid") or not _text(question):
            folder.reject(name, f"pair {pair.get('pid')}", "expected a question with a qid", answer)
        elif answer:
            qid = question.get("qid", "")
            origin = document.get("source", "")
            yield Answer(
                id=f"{number}_{qid}",
                key=f"{origin}_{qid.rpartition('-')[0]}_Sec{qid.rpartition('-')[2]}",
                question=_text(question),
                title=f"{focus} {question.get('qtype', '')}".strip(),
                url=document.get("url", ""),
                synonyms=synonyms,
                text=answer,
                source=origin,
            )


def _read_judged(source: Path) -> tuple[str, str]:
    """Texts of the judgments and of the judged answers, from the zip file or its directory."""
    texts: dict[str, str] = {}
    packed = source / f"{JUDGED}.zip"
    if packed.is_file():
        try:
            with zipfile.ZipFile(packed) as archive:
                names = [name for name in archive.namelist() if not name.startswith("__MACOSX")]
                texts = {name: archive.read(name).decode("utf-8-sig", "replace") for name in names}
        except (zipfile.BadZipFile, OSError) as error:
            raise InputError(f"cannot read {packed}: {error}") from error
    else:
        for path in sorted((source / JUDGED).rglob("*.*")):
            texts[path.name] = path.read_bytes().decode("utf-8-sig", "replace")
    judgements = [
        text for name, text in texts.items() if "qrels" in Path(name).name and name.endswith(".txt")
    ]
    answers = [text for name, text in texts.items() if name.endswith(".csv")]
    if len(judgements) != 1 or len(answers) != 1:
        found = ", ".join(texts) or "nothing"
        raise InputError(
            f"expected {packed} (or a folder {JUDGED}) with one qrels file (.txt) and one file of answers (.csv), "
            f"found {found}"
        )
    return judgements[0], answers[0]


def _judged_answers(text: str, folder: DataFolder) -> Iterator[Answer]:
    csv.field_size_limit(1 << 24)
    rows = csv.DictReader(io.StringIO(text, newline=""))
    if not {"AnswerID", "Answer"} <= set(rows.fieldnames or ()):
        raise InputError(
            f"the judged answers have the columns {rows.fieldnames}, expected AnswerID and Answer"
        )
    for place, row in enumerate(rows, start=1):
        name = _ANSWER_ID.fullmatch((row["AnswerID"] or "").strip())
        parts = _ANSWER.search(row["Answer"] or "")
        if name is None or parts is None or not parts[3].strip():
            reason = "expected SOURCE_DOCUMENT_SecN and `Question: … URL: … Answer: …`"
            folder.reject("judged answers", f"row {place}", reason, f"{row['AnswerID']}: {row['Answer']}")
            continue
        also = _ALSO_CALLED.search(parts[1])
        question = collapsed(_ALSO_CALLED.sub("", parts[1]))
        key = f"{name[1]}_{name[2]}_Sec{name[3]}"
        yield Answer(
            id=f"x_{key}",
            key=key,
            question=question,
            title=question.rstrip(" ?"),
            url=parts[2],
            synonyms=tuple(filter(None, map(collapsed, also[1].split(";")))) if also else (),
            text=_unwrapped(collapsed(parts[3])),
            source=name[1],
        )


def _unwrapped(text: str) -> str:
    """Removes an unmatched last bracket: the file puts rows into brackets."""
    return text[:-1].rstrip() if text.endswith(")") and text.count(")") > text.count("(") else text


def _read_liveqa(path: Path) -> dict[str, str]:
    """Number of a question without `TQ` -> summary."""
    files = sorted(path.rglob("*Test-Questions-w-summaries.xml")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise InputError(
            f"{path} has no TREC-2017-LiveQA-Medical-Test-Questions-w-summaries.xml; "
            "expected that file or a checkout of abachaa/LiveQA_MedicalTask_TREC2017"
        )
    try:
        root = ElementTree.parse(files[0]).getroot()  # noqa: S314 - entities are bounded by expat 2.4.1
    except ElementTree.ParseError as error:
        raise InputError(f"{files[0]} is not XML: {error}") from error
    questions = {
        question.get("qid", "").removeprefix("TQ"): _text(question.find("NLM-Summary"))
        for question in root.iter("NLM-QUESTION")
    }
    if not any(questions.values()):
        raise InputError(
            f"{files[0]} has no <NLM-QUESTION> with an <NLM-Summary>; expected the file with summaries"
        )
    return questions


def _judge_answers(
    text: str, questions: dict[str, str], documents: dict[str, str], folder: DataFolder
) -> None:
    asked: set[str] = set()
    for place, line in enumerate(text.splitlines(), start=1):
        row = line.split()
        grade = _JUDGEMENT.fullmatch(row[1]) if len(row) == 3 else None
        if grade is None:
            reason = "expected a question, a judgment such as 4-Excellent, and an answer"
        elif not questions.get(row[0]):
            reason = "no question has this number"
        elif (key := row[2].removesuffix(".txt")) not in documents:
            reason = "no answer has this id"
        else:
            query, question = f"liveqa-{row[0]}", questions[row[0]]
            if query not in asked:
                folder.add_query(query, question)
                asked.add(query)
            split = split_of(question.casefold(), LIVEQA_SPLITS)
            folder.judge(split, query, documents[key], int(grade[1]) - 1)
            continue
        if row:
            folder.reject("judgements", f"line {place}", reason, line)


def _text(element: ElementTree.Element | None) -> str:
    return "" if element is None else collapsed("".join(element.itertext()))


@app.command()
def medquad(
    source: Annotated[Path, typer.Option(help="Checkout of abachaa/MedQuAD.")],
    liveqa: Annotated[Path, typer.Option(help="LiveQA's test questions with summaries, or their folder.")],
    out: Out,
) -> None:
    """Convert MedQuAD, its judgments and LiveQA's test questions to a data directory."""
    with reporting():
        judgements, judged_answers = _read_judged(source)
        questions = _read_liveqa(liveqa)
        with DataFolder(out) as folder:
            asked: dict[str, list[str]] = {}
            documents: dict[str, str] = {}
            for answer in _answers(source, folder):
                _add(answer, folder)
                documents.setdefault(answer.key, answer.id)
                asked.setdefault(answer.question, []).append(answer.id)
            for question, found in asked.items():
                folder.add_query(f"medquad-{found[0]}", question)
                for document in dict.fromkeys(found):
                    folder.judge(
                        split_of(question.casefold(), MEDQUAD_SPLITS), f"medquad-{found[0]}", document, 1
                    )
            for answer in _judged_answers(judged_answers, folder):
                if answer.key not in documents:
                    _add(answer, folder)
                    documents[answer.key] = answer.id
            _judge_answers(judgements, questions, documents, folder)
        sys.stdout.write(folder.summary() + "\n")


if __name__ == "__main__":
    app()
