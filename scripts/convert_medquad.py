"""Converts MedQuAD and LiveQA-Med to a data folder: `python -m scripts.convert_medquad --source DIR --liveqa FILE --out DIR`.

Input formats:

- MedQuAD (checkout of abachaa/MedQuAD): `NUMBER_NAME/FILE.xml` with `<Document id source url>`, `<Focus>`,
  `<Synonym>`s and `<QAPair>`s of `<Question qid qtype>` and `<Answer>`. Three directories have empty answers because
  of copyright; these are skipped.
- its judgments: `QA-TestSet-LiveQA-Med-Qrels-2479-Answers.zip` (or the same unpacked) with a text file of
  `QUESTION JUDGEMENT ANSWER` (`1 4-Excellent GHR_0000804_Sec1.txt`) and a CSV file of `AnswerID,Answer`, where an answer
  reads `Question: … (Also called: …; …) URL: … Answer: …`. The CSV's layout is known only from its readers; lines
  that do not match are rejected.
- LiveQA-Med (abachaa/LiveQA_MedicalTask_TREC2017): `TREC-2017-LiveQA-Medical-Test-Questions-w-summaries.xml` with
  `<NLM-QUESTION qid="TQ1">` and its `<NLM-Summary>`, which is the query.

Answers become documents, with focus and question type as title and up to 8 synonyms as anchors. Questions with equal
text become one query, whose answers are all relevant. A hash of the text assigns it to train, dev or test (80, 10 and
10 of 100). A judged answer `SOURCE_DOCUMENT_SecN` is the document of that document's Nth question; others are added as
`x_SOURCE_DOCUMENT_SecN`. Judgments 1 to 4 become grades 0 to 3. A hash of the summary assigns half of the questions to
`liveqa-dev` and half to `liveqa-test`.
"""

import csv
import io
import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

import typer

from glow.commands import reporting
from glow.errors import InputError
from scripts.convert_layout import DataFolder, collapsed, split_of

SPLITS = (("train", 0.8), ("dev", 0.1), ("test", 0.1))
LIVEQA_SPLITS = (("liveqa-dev", 0.5), ("liveqa-test", 0.5))
JUDGED = "QA-TestSet-LiveQA-Med-Qrels-2479-Answers"
MAX_SYNONYMS = 8
_FOLDER = re.compile(r"(\d+)_.+")
_ANSWER_ID = re.compile(r"([A-Za-z]+)_(\w+)_Sec(\d+)(?:\.txt)?")
_ANSWER = re.compile(r"Question:\s*(.*?)\s*URL:\s*(\S+)\s*Answer:\s*(.*)", re.DOTALL)
_ALSO_CALLED = re.compile(r"\s*\(Also called:\s*(.*)\)\s*$", re.DOTALL)
_JUDGEMENT = re.compile(r"([1-4])(?:-\w+)?")

app = typer.Typer(add_completion=False)


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


def convert(source: Path, liveqa: Path, out: Path) -> str:
    """Converts a checkout and the LiveQA questions.

    Args:
        source: checkout of MedQuAD.
        liveqa: the test questions with summaries, or a directory that holds them.
        out: the data directory to create.

    Returns:
        A summary in one line.

    Raises:
        InputError: if a file or directory is missing or cannot be read, or `out` exists.
    """
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
                folder.judge(split_of(question.casefold(), SPLITS), f"medquad-{found[0]}", document, 1)
        for answer in _judged_answers(judged_answers, folder):
            if answer.key not in documents:
                _add(answer, folder)
                documents[answer.key] = answer.id
        _judge(judgements, questions, documents, folder)
    return folder.summary()


def _add(answer: Answer, folder: DataFolder) -> None:
    folder.add_document(
        answer.id, answer.text, answer.url, answer.title, answer.synonyms, source=answer.source
    )


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


def _judge(text: str, questions: dict[str, str], documents: dict[str, str], folder: DataFolder) -> None:
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
def main(
    source: Annotated[Path, typer.Option(help="Checkout of abachaa/MedQuAD.")],
    liveqa: Annotated[Path, typer.Option(help="LiveQA's test questions with summaries, or their folder.")],
    out: Annotated[Path, typer.Option(help="Data folder to make.")],
) -> None:
    """Convert MedQuAD, its judgments and LiveQA's test questions to a data directory."""
    with reporting():
        sys.stdout.write(convert(source, liveqa, out) + "\n")


if __name__ == "__main__":
    app()
