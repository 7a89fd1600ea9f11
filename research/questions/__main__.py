"""Builds test datasets from documentation in Debian packages.

apt-get download $(python -m research questions packages)
python -m research questions build --packages P --out OUT
python -m research questions pairs --root UNPACKED --out OUT
"""

import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from glow.commands import package_app, reporting, say
from glow.errors import InputError
from research.debian.readers import book_pairs
from research.folders import Record, given_folder, names_among, read_records, write_folder
from research.questions.parts import (
    COLLECTIONS,
    SOURCES,
    Collection,
    Part,
    html_parts,
    plain_heading,
    read_parts,
    slug,
)

MIN_WORDS = 8
"""Shorter sections hold only links or code."""
MAX_WORDS = 1000


@dataclass(frozen=True)
class Document:
    """One section or definition."""

    id: str  # page and anchor, `library/os.path#os.path.join`
    url: str  # the section's address on the web
    title: str  # heading path
    text: str  # at most 1,000 words


@dataclass
class Documents:
    """The documents of a dataset and their addresses."""

    by_id: dict[str, Document] = field(default_factory=dict)  # documents by id, in page order
    addresses: dict[tuple[str, str], str] = field(default_factory=dict)  # (page, anchor) -> id

    def targets(self, links: Iterable[tuple[str, str]], whole_pages: str = "") -> list[str]:
        """Distinct ids of linked documents in order; other links are left out."""
        named = [link for link in links if link[1] or re.search(whole_pages, link[0])]
        return list(dict.fromkeys(self.addresses[link] for link in named if link in self.addresses))


def make_documents(parts: Sequence[Part]) -> Documents:
    """Makes a document of each part that has enough words; equal texts under equal headings become one."""
    documents = Documents()
    ids: dict[tuple[str, str], str] = {}
    first: dict[tuple[str, str], str] = {}
    for part in parts:
        if len(part.text.split()) < MIN_WORDS:
            continue
        key = part.heading, part.text
        if key not in ids:
            ids[key] = free_id(f"{part.page}#{part.anchor}".replace(" ", "_"), documents.by_id)
            documents.by_id[ids[key]] = _document(part, ids[key])
        part.document = ids[key]
        first.setdefault((part.page, ""), ids[key])
        for anchor in (*part.anchors, part.anchor):
            documents.addresses.setdefault((part.page, anchor), ids[key])
    documents.addresses = {**first, **documents.addresses}
    return documents


def _document(part: Part, identifier: str) -> Document:
    url = f"{part.address}#{part.anchor.replace(' ', '-')}" if part.heading else part.address
    return Document(identifier, url, part.title, " ".join(part.text.split()[:MAX_WORDS]))


def free_id(name: str, taken: Container[str]) -> str:
    """The name, with the suffix `~2`, `~3` and so on if it is taken."""
    number = 1
    identifier = name
    while identifier in taken:
        number += 1
        identifier = f"{name}~{number}"
    return identifier


MIN_QUESTION_WORDS = 3
MAX_TARGETS = 6
"""If an answer links to more sections, the relevant one is unknown."""
MAX_QUESTIONS_OF_A_TARGET = 5
"""A target of more answers is a term that they mention (`list`), and not relevant to them."""
_ASKS = re.compile(
    r"(?i)^\W*(how|why|what|where|when|which|who|whose|can|could|do|does|did|is|are|was|has|have|should|will|would|i|i[\u2019']m|my)\b"
)


@dataclass(frozen=True)
class Question:
    """A question with its relevant documents."""

    id: str  # page and heading in lower case
    text: str  # the original text
    answers: tuple[str, ...]  # document ids in link order


def is_question(heading: str) -> bool:
    """Whether a heading of a FAQ is a question: a question mark, a question word, or a problem ("I cannot ...")."""
    long_enough = len(heading.split()) >= MIN_QUESTION_WORDS
    return (
        long_enough
        and not heading.endswith(("…", "..."))
        and ("?" in heading or _ASKS.match(heading) is not None)
    )


def faq_questions(
    parts: Sequence[Part], pages: str, *, own_answers: bool, whole_pages: str = ""
) -> tuple[Documents, list[Question]]:
    """Removes the FAQ's pages from the documents, and judges its questions by the links of their answers."""
    outside = [part for part in parts if not re.search(pages, part.page)]
    linked = make_documents(outside)
    headings = [part for part in parts if re.search(pages, part.page) and is_question(part.heading)]
    answers = [_answer(heading, parts) for heading in headings]
    targets = [
        linked.targets((link for part in answer for link in part.links), whole_pages) for answer in answers
    ]
    counts = Counter(target for ids in targets for target in ids)
    by_link: list[tuple[Part, list[str]]] = []
    by_itself: list[tuple[Part, list[Part]]] = []
    for heading, answer, ids in zip(headings, answers, targets, strict=True):
        specific = [target for target in ids if counts[target] <= MAX_QUESTIONS_OF_A_TARGET]
        if specific and len(ids) <= MAX_TARGETS:
            by_link.append((heading, specific))
        elif own_answers and not ids:
            by_itself.append((heading, [_without_question(part, heading) for part in answer]))
    documents = make_documents([*outside, *(part for _, answer in by_itself for part in answer)])
    own = [(heading, [part.document for part in answer if part.document]) for heading, answer in by_itself]
    return documents, _questions([*by_link, *own])


def _answer(question: Part, parts: Sequence[Part]) -> list[Part]:
    """The question's part and the sections below it, except those that are questions or below one."""
    depth = len(question.parents) + 1
    below = (part for part in parts if part is not question and part.is_below(question))
    return [
        question,
        *(part for part in below if not any(map(is_question, [*part.parents[depth:], part.heading]))),
    ]


def _without_question(part: Part, question: Part) -> Part:
    """The part with a fixed anchor for its id, and without questions in title and address."""
    parents = [title for title in part.parents if not is_question(title)]
    heading = "" if part is question else part.heading
    return replace(part, heading=heading, parents=parents, anchors=[part.anchor, *part.anchors])


def _questions(judgments: Sequence[tuple[Part, list[str]]]) -> list[Question]:
    """The questions with relevant documents, without duplicate texts."""
    questions: dict[str, Question] = {}
    taken: set[str] = set()
    for heading, answers in judgments:
        text = " ".join(heading.heading.split())
        if answers and text.lower() not in questions:
            identifier = free_id(f"{heading.page}:{slug(text)}", taken)
            taken.add(identifier)
            questions[text.lower()] = Question(identifier, text, tuple(dict.fromkeys(answers)))
    return list(questions.values())


FOLDER = Path(__file__).parent / "howto"
MAX_ANSWERS = 4


def howto_questions(path: Path, documents: Documents) -> list[Question]:
    """Reads questions, and checks their answers against the documents."""
    questions: dict[str, Question] = {}
    faults: list[str] = []
    for record in read_records(path):
        question = Question(record["id"], record["text"], tuple(record["answers"]))
        if question.id in questions:
            faults.append(f"{question.id}: the id is used twice")
        if not 1 <= len(question.answers) <= MAX_ANSWERS:
            faults.append(f"{question.id}: {len(question.answers)} answers, not 1 to {MAX_ANSWERS}")
        faults += [
            f"{question.id}: no document {each}" for each in question.answers if each not in documents.by_id
        ]
        questions[question.id] = question
    if faults:
        raise InputError(f"{path.name}: " + "; ".join(faults))
    return list(questions.values())


HALVES = ("dev", "test")


def half_of(text: str, earlier: AbstractSet[str] = frozenset()) -> str:
    """`dev` or `test` for a question, independent of the other questions."""
    words = normalized(text)
    if earlier:
        return HALVES[words not in earlier]
    return HALVES[hashlib.sha256(words.encode()).digest()[0] % 2]


def normalized(text: str) -> str:
    """Lower case, one blank between words, no final question mark."""
    return " ".join(text.lower().split()).rstrip(" ?.")


def questions_of_late_interaction(roots: Iterable[Path]) -> set[str]:
    """Questions that may be in the dataset `faq`, on which late interaction was developed."""
    pairs = (pair for root in roots for pair in book_pairs(root))
    return {
        normalized(pair.query.removesuffix("# TOC"))
        for pair in pairs
        if hashlib.sha256(f"q-{pair.id}".encode()).digest()[0] % 2 == 0
    }


def write_collection(
    folder: Path, documents: Documents, questions: Sequence[Question], earlier: AbstractSet[str] = frozenset()
) -> dict[str, int]:
    """Writes corpus, queries, and a file of judgments for each half."""
    found = documents.by_id.values()
    judged = {
        half: {each.id: each.answers for each in questions if half_of(each.text, earlier) == half}
        for half in HALVES
    }
    write_folder(
        folder,
        ({"_id": each.id, "url": each.url, "title": each.title, "text": each.text} for each in found),
        ({"_id": each.id, "text": each.text} for each in questions),
        judged,
    )
    return {"documents": len(found), **{half: len(answers) for half, answers in judged.items()}}


SHARE = Path("usr/share/doc")
FEWEST_WORDS, MOST_WORDS = 2, 12
MAX_SECTIONS_OF_A_TEXT = 3
"""A text with more target sections does not describe one ("for more information")."""
MAX_ANCHORS, MAX_PAGE_BYTES = 8, 1 << 21
LETTERS = 0.7
_OUT = re.compile(
    r"(^|/)(genindex\S*|py-modindex|search|changelog\S*|contents|copyright|index-all|overview-\S*|package-\S*|class-use|api|javadoc)(/|$)"
)
_NO_QUERY = re.compile(
    r"(?i)^(see|next|prev(ious)?|up|back|home|top|table|chapter|section|figure|appendix|example|part|page|click|read|this|that|these|the "
    r"(above|following|previous|next|section)|here|more|further|full|all|old|new|download|edit|view|source)\b|https?:|[_{}<>=\\|]|::|\(\)"
)
_OTHER_LANGUAGE = re.compile(r"^(?!en)[a-z]{2}([-_@][A-Za-z]+)?$")


class LinkPairs(NamedTuple):
    """Documents and queries of one package."""

    documents: list[Record]  # `_id`, `title`, `anchor`, `text`
    queries: dict[str, list[str]]  # text -> ids of the relevant documents


def link_pairs(root: Path) -> Iterator[LinkPairs]:
    """Reads each directory of documentation below a root."""
    for folder in sorted(
        each for each in (root / SHARE).iterdir() if each.is_dir() and not each.is_symlink()
    ):
        parts = [part for page in _pages(folder) for part in page]
        if parts:
            yield _pairs(folder.name, parts)


def _pages(folder: Path) -> Iterator[list[Part]]:
    for directory, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if not _OTHER_LANGUAGE.match(name))
        for file in sorted(files):
            path = Path(directory, file)
            page = path.relative_to(folder).with_suffix("").as_posix()
            readable = path.suffix in (".html", ".htm") and not _OUT.search(page) and path.is_file()
            readable = readable and not _OTHER_LANGUAGE.match(Path(page).suffix.removeprefix("."))
            if readable and path.stat().st_size <= MAX_PAGE_BYTES:
                yield html_parts(path.read_text(encoding="utf-8", errors="replace"), page)


def _pairs(package: str, parts: Sequence[Part]) -> LinkPairs:
    found = make_documents(parts)
    texts = _link_texts(found, parts)
    sections = Counter(text for counts in texts.values() for text in counts)
    queries: dict[str, list[str]] = defaultdict(list)
    documents = []
    for identifier, document in found.by_id.items():
        if (
            not document.text.isascii()
            and sum(letter > "\u024f" for letter in document.text) > len(document.text) / 20
        ):
            continue
        name, anchors = f"link:{package}/{identifier}", []
        for text, _ in texts.get(identifier, Counter()).most_common():
            if sections[text] > MAX_SECTIONS_OF_A_TEXT:
                continue
            if _first_byte(text) % 2:
                anchors.append(text)
            else:
                queries[text].append(name)
        documents.append(
            {"_id": name, "title": document.title, "anchor": anchors[:MAX_ANCHORS], "text": document.text}
        )
    return LinkPairs(documents, dict(queries))


def _link_texts(found: Documents, parts: Sequence[Part]) -> dict[str, Counter[str]]:
    """Document -> number of links per text, including FAQ questions as texts."""
    texts: dict[str, Counter[str]] = defaultdict(Counter)
    for part in parts:
        for link, text in zip(part.links, part.link_texts, strict=True):
            target, words = found.addresses.get(link), plain_heading(text).strip(" .,:;\u201c\u201d\"'")
            if target and target != part.document and link[1] and _asks(words):
                texts[target][words] += 1
        targets = found.targets(part.links, whole_pages="$^")
        if is_question(part.heading) and len(targets) <= MAX_TARGETS:
            for target in targets:
                texts[target][part.heading] += 1
    return texts


def _asks(text: str) -> bool:
    letters = sum(letter.isalpha() or letter == " " for letter in text)
    return (
        FEWEST_WORDS <= len(text.split()) <= MOST_WORDS
        and letters >= LETTERS * len(text)
        and not _NO_QUERY.search(text)
    )


def _first_byte(text: str) -> int:
    return hashlib.sha256(text.lower().encode()).digest()[0]


EARLIER = {"faq-r": ("r-doc-html",), "faq-debian": ("debian-faq",)}
"""Dataset -> packages whose headings the study of late interaction used as queries."""
NAMES = [each.name for each in COLLECTIONS]


def packages_command() -> None:
    """Prints the packages with the versions that the questions were written for, in apt-get's syntax."""
    for source in SOURCES.values():
        say(f"{source.package}={source.version}")


def build_command(
    packages: Annotated[Path, given_folder("holds a folder for each package, as dpkg -x leaves it")],
    out: Annotated[Path, typer.Option(help="folder to write; a folder of BEIR's layout for each collection")],
    only: Annotated[str, names_among(NAMES, "names of collections with commas between")] = ",".join(NAMES),
) -> None:
    """Writes corpus.jsonl, queries.jsonl, qrels/dev.tsv and qrels/test.tsv of each dataset."""
    with reporting():
        for each in (each for each in COLLECTIONS if each.name in only.split(",")):
            counts = _build(each, packages, out / each.name)
            say(f"{each.name}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items()))


def _build(each: Collection, packages: Path, out: Path) -> dict[str, int]:
    parts = [part for name in each.sources for part in read_parts(SOURCES[name], packages)]
    if each.pages:
        documents, questions = faq_questions(
            parts, each.pages, own_answers=each.own_answers, whole_pages=each.whole_pages
        )
        earlier = questions_of_late_interaction(packages / name for name in EARLIER.get(each.name, ()))
        return write_collection(out, documents, questions, earlier)
    # A FAQ of the same documentation would compete with the relevant sections.
    faqs = [other.pages for other in COLLECTIONS if other.pages and other.sources == each.sources]
    documents = make_documents(
        [part for part in parts if not any(re.search(pages, part.page) for pages in faqs)]
    )
    questions = howto_questions(FOLDER / f"{each.name.removeprefix('howto-')}.jsonl", documents)
    return write_collection(out, documents, questions)


def pairs_command(
    root: Annotated[list[Path], given_folder("holds usr/share/doc; may be given several times")],
    out: Annotated[Path, typer.Option(help="folder to write, in BEIR's layout")],
) -> None:
    """Writes training pairs of link texts and their target sections."""
    with reporting():
        found = [each for folder in root for each in link_pairs(folder)]
        ids = {
            text: f"q{number}"
            for number, text in enumerate(dict.fromkeys(text for each in found for text in each.queries))
        }
        judged: dict[str, list[str]] = {}
        for each in found:
            for text, sections in each.queries.items():
                judged.setdefault(ids[text], []).extend(sections)
        documents = [document for each in found for document in each.documents]
        write_folder(
            out, documents, ({"_id": key, "text": text} for text, key in ids.items()), {"train": judged}
        )
        anchors = sum(len(document["anchor"]) for document in documents)
        say(f"{len(documents):,} documents with {anchors:,} anchors, {len(ids):,} queries")


app = package_app(
    {"packages": packages_command, "build": build_command, "pairs": pairs_command},
    "Test collections and training pairs from documentation.",
)

if __name__ == "__main__":
    app()
