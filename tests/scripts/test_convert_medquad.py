"""A checkout of MedQuAD, its judgments and LiveQA's questions become a data directory."""

import csv
import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from glow.collection import read_qrels, read_queries
from scripts.convert import JUDGED, LIVEQA_SPLITS, MEDQUAD_SPLITS, app

QUESTIONS = """<LiveQA2017-Medical-Test-Set-Full>
\t<NLM-QUESTION qid="TQ1">
\t\t<Original-Question qfile="71.txt"><SUBJECT>Noonan syndrome</SUBJECT></Original-Question>
\t\t<NIST-PARAPHRASE>What is the relationship?</NIST-PARAPHRASE>
\t\t<NLM-Summary>What is the relationship between Noonan syndrome and
\t\t\tpolycystic renal disease?</NLM-Summary>
\t</NLM-QUESTION>
\t<NLM-QUESTION qid="TQ2"><NLM-Summary> Do tablets contain gluten? </NLM-Summary></NLM-QUESTION>
\t<NLM-QUESTION qid="TQ3"><NLM-Summary/></NLM-QUESTION>
</LiveQA2017-Medical-Test-Set-Full>
"""
QRELS = """1 4-Excellent GHR_0000001_Sec1.txt
1 2-Related ADAM_0000012_Sec3.txt
2 1-Incorrect ADAM_0000012_Sec3.txt
2 3-Incomplete GHR_0000001_Sec2.txt
2 3-Incomplete GHR_0000404_Sec1.txt
3 1-Incorrect GHR_0000001_Sec1.txt
2 Good GHR_0000001_Sec1.txt
"""
ANSWERS = [
    ("ADAM_0000012_Sec3.txt", "(Question: What causes Burns ? (Also called: First degree burn; Scald (hot))"
     " URL: https://example.org/burns.htm Answer: Heat.\n Hot  water (steam).)"),
    ("GHR_0000001_Sec1.txt", "Question: What is (are) Aarskog syndrome ?\nURL: https://example.org/0000001\nAnswer: A disorder."),
    ("ADAM_0000013_Sec1.txt", "no parts"),
]  # fmt: skip


def document(id_: str, source: str, focus: str, synonyms: int, *pairs: tuple[int, str, str, str]) -> str:
    names = "".join(f"<Synonym>{focus} {number}</Synonym>" for number in range(synonyms))
    rows = "".join(
        f'<QAPair pid="{pid}"><Question qid="{id_}-{pid}" qtype="{kind}">{question}</Question>'
        f"<Answer>{answer}</Answer></QAPair>"
        for pid, kind, question, answer in pairs
    )
    about = f"<Focus>{focus}</Focus><FocusAnnotations><Synonyms>{names}</Synonyms></FocusAnnotations>"
    url = f"https://example.org/{id_}"
    return f'<Document id="{id_}" source="{source}" url="{url}">{about}<QAPairs>{rows}</QAPairs></Document>'


def write_judged(source: Path, qrels: str) -> None:
    file = io.StringIO()
    csv.writer(file).writerows([("AnswerID", "Answer"), *ANSWERS])
    with zipfile.ZipFile(source / f"{JUDGED}.zip", "w") as archive:
        archive.writestr(f"{JUDGED}/All-qrels_LiveQAMed2017-TestQuestions_2479_Judged-Answers.txt", qrels)
        archive.writestr(f"{JUDGED}/All-2479-Answers-retrieved-from-MedQuAD.csv", file.getvalue())
        archive.writestr(f"__MACOSX/{JUDGED}/._All-2479-Answers-retrieved-from-MedQuAD.csv", b"\0")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    aarskog = (1, "information", "What is (are) Aarskog syndrome ?", "A  genetic\n   disorder &amp; more.")
    tests = (3, "exams and tests", "How to diagnose Aarskog syndrome ?", "By tests.")
    another = (1, "information", "What is (are) Aarskog syndrome ?", "Another answer.")
    burns = ((3, "causes", "What causes Burns ?", ""), (4, "outlook", "What follows Burns ?", "Scars."))
    ghr = document("0000001", "GHR", "Aarskog syndrome", 9, aarskog, tests)
    files = {
        "3_GHR_QA/0000001.xml": ghr,
        "1_CancerGov_QA/0000001_1.xml": document("0000001_1", "CancerGov", "Aarskog", 0, another),
        "10_MPlus_ADAM_QA/0000012.xml": document("0000012", "ADAM", "Burns", 1, *burns),
        "9_CDC_QA/0000009.xml": ghr[:500],
    }
    for name, text in files.items():
        path = tmp_path / "MedQuAD" / name
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    write_judged(tmp_path / "MedQuAD", QRELS)
    return tmp_path / "MedQuAD"


@pytest.fixture
def liveqa(tmp_path: Path) -> Path:
    path = tmp_path / "LiveQA" / "TestDataset" / "TREC-2017-LiveQA-Medical-Test-Questions-w-summaries.xml"
    path.parent.mkdir(parents=True)
    path.write_text(QUESTIONS, encoding="utf-8")
    return path


def run(source: Path, liveqa: Path, out: Path) -> Result:
    arguments = ["medquad", "--source", str(source), "--liveqa", str(liveqa), "--out", str(out)]
    return CliRunner().invoke(app, arguments)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def out(source: Path, liveqa: Path, tmp_path: Path) -> Path:
    done = run(source, liveqa, tmp_path / "out")
    assert done.exit_code == 0, done.output
    return tmp_path / "out"


def judgements(out: Path, splits: Sequence[tuple[str, float]]) -> set[tuple[str, str, int]]:
    paths = [out / "qrels" / f"{name}.tsv" for name, _ in splits]
    found = [qrel for path in paths if path.is_file() for qrel in read_qrels(path)]
    return {(qrel.query_id, qrel.document_id, qrel.grade) for qrel in found}


def test_answers_become_documents_in_the_folders_order_and_empty_ones_do_not(out: Path) -> None:
    """A judged answer that is no document is added."""
    documents = read(out / "corpus.jsonl")
    ids = "1_0000001_1-1 3_0000001-1 3_0000001-3 10_0000012-4 x_ADAM_0000012_Sec3".split()
    assert [document["_id"] for document in documents] == ids
    assert documents[1] == {
        "_id": "3_0000001-1",
        "url": "https://example.org/0000001",
        "title": "Aarskog syndrome information",
        "anchor": [f"Aarskog syndrome {number}" for number in range(8)],
        "clicked_queries": [],
        "text": "A genetic disorder & more.",
        "source": "GHR",
    }
    assert documents[-1] == {
        "_id": "x_ADAM_0000012_Sec3",
        "url": "https://example.org/burns.htm",
        "title": "What causes Burns",
        "anchor": ["First degree burn", "Scald (hot)"],
        "clicked_queries": [],
        "text": "Heat. Hot water (steam).",
        "source": "ADAM",
    }


def test_a_question_is_one_query_with_every_answer_and_judged_ones_have_their_summary_and_grades(
    out: Path,
) -> None:
    texts = {query.id: query.text for query in read_queries(out / "queries.jsonl")}
    assert texts["medquad-1_0000001_1-1"] == "What is (are) Aarskog syndrome ?"
    relation = "What is the relationship between Noonan syndrome and polycystic renal disease?"
    assert (texts["liveqa-1"], texts["liveqa-2"]) == (relation, "Do tablets contain gluten?")
    assert "liveqa-3" not in texts
    assert judgements(out, MEDQUAD_SPLITS) == {
        ("medquad-1_0000001_1-1", "1_0000001_1-1", 1),
        ("medquad-1_0000001_1-1", "3_0000001-1", 1),
        ("medquad-3_0000001-3", "3_0000001-3", 1),
        ("medquad-10_0000012-4", "10_0000012-4", 1),
    }
    assert judgements(out, LIVEQA_SPLITS) == {
        ("liveqa-1", "3_0000001-1", 3),
        ("liveqa-1", "x_ADAM_0000012_Sec3", 1),
        ("liveqa-2", "x_ADAM_0000012_Sec3", 0),
    }


def test_judged_questions_of_one_text_are_in_one_split(source: Path, liveqa: Path, tmp_path: Path) -> None:
    """Eight questions, case aside the same one: numbers would spread them over both splits."""
    template = '<NLM-QUESTION qid="TQ{0}"><NLM-Summary>{1}</NLM-Summary></NLM-QUESTION>'
    texts = ["is it AARSKOG?", "Is it Aarskog?"] * 4
    asked = [template.format(number, text) for number, text in enumerate(texts)]
    liveqa.write_text(f"<TREC>{''.join(asked)}</TREC>", encoding="utf-8")
    write_judged(source, "".join(f"{number} 4-Excellent GHR_0000001_Sec1.txt\n" for number in range(8)))
    done = run(source, liveqa, tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert sorted(len(judgements(tmp_path / "out", [split])) for split in LIVEQA_SPLITS) == [0, 8]


def test_what_cannot_be_used_is_kept_aside(out: Path) -> None:
    rejects = [(reject["file"], reject["place"], reject["reason"]) for reject in read(out / "rejects.jsonl")]
    assert [reject[:2] for reject in rejects[:2]] == [
        ("9_CDC_QA/0000009.xml", "file"),
        ("judged answers", "row 3"),
    ]
    assert rejects[2:] == [
        ("judgements", "line 4", "no answer has this id"),
        ("judgements", "line 5", "no answer has this id"),
        ("judgements", "line 6", "no question has this number"),
        ("judgements", "line 7", "expected a question, a judgment such as 4-Excellent, and an answer"),
    ]


def test_an_unpacked_folder_of_judgements_and_a_folder_of_questions_are_read_too(
    source: Path, liveqa: Path, out: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(source / f"{JUDGED}.zip") as archive:
        archive.extractall(source, [name for name in archive.namelist() if not name.startswith("__")])
    (source / f"{JUDGED}.zip").unlink()
    done = run(source, liveqa.parent.parent, tmp_path / "again")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "again" / "corpus.jsonl").read_bytes() == (out / "corpus.jsonl").read_bytes()


def test_wrong_folders_are_named(source: Path, liveqa: Path, tmp_path: Path) -> None:
    def refused(questions: Path = liveqa) -> str:
        done = run(source, questions, tmp_path / "out")
        assert done.exit_code == 2 and not (tmp_path / "out").exists()
        return done.output

    assert "expected that file or a checkout of abachaa/LiveQA" in refused(tmp_path / "nowhere")
    for path in source.rglob("*.xml"):
        path.unlink()
    assert "expected a checkout of abachaa/MedQuAD" in refused()
    (source / f"{JUDGED}.zip").write_bytes(b"PK not a zip")
    assert f"cannot read {source / JUDGED}.zip" in refused()
    (source / f"{JUDGED}.zip").unlink()
    assert "found nothing" in refused()


def test_fields_are_those_of_the_collection_at_hand(shared_data: Path, out: Path) -> None:
    for name in ("corpus.jsonl", "queries.jsonl"):
        with (shared_data / "medquad" / name).open(encoding="utf-8") as file:
            assert list(json.loads(file.readline())) == list(read(out / name)[0])
