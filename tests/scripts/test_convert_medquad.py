"""A checkout of MedQuAD, its judgments and LiveQA's questions become a data directory."""

import csv
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from glow.collection import read_qrels, read_queries
from scripts.convert import JUDGED, LIVEQA_SPLITS, MEDQUAD_SPLITS, app

XML = """<?xml version="1.0" encoding="UTF-8"?>
<Document id="{id}" source="{source}" url="https://example.org/{id}">
<Focus>{focus}</Focus>
<FocusAnnotations>
\t<UMLS>
\t\t<CUIs>
\t\t\t<CUI>C0175701</CUI>
\t\t</CUIs>
\t\t<SemanticGroup>Disorders</SemanticGroup>
\t</UMLS>
\t<Synonyms>
{synonyms}\t</Synonyms>
</FocusAnnotations>
<QAPairs>
{pairs}</QAPairs>
</Document>
"""
PAIR = """\t<QAPair pid="{pid}">
\t\t\t<Question qid="{id}-{pid}" qtype="{kind}">{question}</Question>
\t\t\t<Answer>{answer}</Answer>
\t</QAPair>
"""
QUESTIONS = """<?xml version="1.0" encoding="UTF-8"?>
<LiveQA2017-Medical-Test-Set-Full>
\t<NLM-QUESTION qid="TQ1">
\t\t<Original-Question qfile="71.txt">
\t\t\t<SUBJECT>Noonan syndrome</SUBJECT>
\t\t\t<MESSAGE>What are the references with noonan syndrome and polycystic renal disease</MESSAGE>
\t\t</Original-Question>
\t\t<NIST-PARAPHRASE>What is the relationship?</NIST-PARAPHRASE>
\t\t<NLM-Summary>What is the relationship between Noonan syndrome and
\t\t\tpolycystic renal disease?</NLM-Summary>
\t</NLM-QUESTION>
\t<NLM-QUESTION qid="TQ2">
\t\t<Original-Question qFile="1-136931717.xml.txt"/>
\t\t<NLM-Summary> Do Zolmitriptan 5mg tablets contain gluten? </NLM-Summary>
\t</NLM-QUESTION>
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


def document(
    identifier: str, source: str, focus: str, synonyms: int, pairs: list[tuple[int, str, str, str]]
) -> str:
    rows = [
        PAIR.format(id=identifier, pid=pid, kind=kind, question=question, answer=answer)
        for pid, kind, question, answer in pairs
    ]
    names = [f"\t\t<Synonym>{focus} {number}</Synonym>\n" for number in range(synonyms)]
    return XML.format(id=identifier, source=source, focus=focus, synonyms="".join(names), pairs="".join(rows))


def judged_csv() -> str:
    file = io.StringIO()
    csv.writer(file).writerows([("AnswerID", "Answer"), *ANSWERS])
    return file.getvalue()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "MedQuAD"
    for name in ("3_GHR_QA", "1_CancerGov_QA", "10_MPlus_ADAM_QA", "9_CDC_QA"):
        (folder / name).mkdir(parents=True)
    pairs = [
        (1, "information", "What is (are) Aarskog syndrome ?", "A  genetic\n   disorder &amp; more."),
        (3, "exams and tests", "How to diagnose Aarskog syndrome ?", "By tests."),
    ]
    ghr = document("0000001", "GHR", "Aarskog syndrome", 9, pairs)
    (folder / "3_GHR_QA" / "0000001.xml").write_text(ghr, encoding="utf-8")
    pairs = [(1, "information", "What is (are) Aarskog syndrome ?", "Another answer.")]
    cancer = document("0000001_1", "CancerGov", "Aarskog", 0, pairs)
    (folder / "1_CancerGov_QA" / "0000001_1.xml").write_text(cancer, encoding="utf-8")
    pairs = [(3, "causes", "What causes Burns ?", ""), (4, "outlook", "What follows Burns ?", "Scars.")]
    adam = document("0000012", "ADAM", "Burns", 1, pairs)
    (folder / "10_MPlus_ADAM_QA" / "0000012.xml").write_text(adam, encoding="utf-8")
    (folder / "9_CDC_QA" / "0000009.xml").write_text(ghr[:500], encoding="utf-8")
    with zipfile.ZipFile(folder / f"{JUDGED}.zip", "w") as archive:
        name = f"{JUDGED}/All-qrels_LiveQAMed2017-TestQuestions_2479_Judged-Answers.txt"
        archive.writestr(name, QRELS)
        archive.writestr(f"{JUDGED}/All-2479-Answers-retrieved-from-MedQuAD.csv", judged_csv())
        archive.writestr(f"__MACOSX/{JUDGED}/._All-2479-Answers-retrieved-from-MedQuAD.csv", b"\0")
    return folder


@pytest.fixture
def liveqa(tmp_path: Path) -> Path:
    folder = tmp_path / "LiveQA" / "TestDataset"
    folder.mkdir(parents=True)
    path = folder / "TREC-2017-LiveQA-Medical-Test-Questions-w-summaries.xml"
    path.write_text(QUESTIONS, encoding="utf-8")
    return path


def run(source: Path, liveqa: Path, out: Path) -> Result:
    given = ["--source", str(source), "--liveqa", str(liveqa), "--out", str(out)]
    return CliRunner().invoke(app, ["medquad", *given])


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def out(source: Path, liveqa: Path, tmp_path: Path) -> Path:
    done = run(source, liveqa, tmp_path / "out")
    assert done.exit_code == 0, done.output
    return tmp_path / "out"


def judgements(out: Path, names: list[str]) -> set[tuple[str, str, int]]:
    paths = [out / "qrels" / f"{name}.tsv" for name in names]
    found = [qrel for path in paths if path.is_file() for qrel in read_qrels(path)]
    return {(qrel.query_id, qrel.document_id, qrel.grade) for qrel in found}


def test_answers_become_documents_in_the_folders_order_and_empty_ones_do_not(out: Path) -> None:
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


def test_a_judged_answer_that_is_no_document_is_added(out: Path) -> None:
    assert read(out / "corpus.jsonl")[-1] == {
        "_id": "x_ADAM_0000012_Sec3",
        "url": "https://example.org/burns.htm",
        "title": "What causes Burns",
        "anchor": ["First degree burn", "Scald (hot)"],
        "clicked_queries": [],
        "text": "Heat. Hot water (steam).",
        "source": "ADAM",
    }


def test_a_question_is_one_query_with_every_answer(out: Path) -> None:
    texts = {query.id: query.text for query in read_queries(out / "queries.jsonl")}
    assert texts["medquad-1_0000001_1-1"] == "What is (are) Aarskog syndrome ?"
    assert judgements(out, [name for name, _ in MEDQUAD_SPLITS]) == {
        ("medquad-1_0000001_1-1", "1_0000001_1-1", 1),
        ("medquad-1_0000001_1-1", "3_0000001-1", 1),
        ("medquad-3_0000001-3", "3_0000001-3", 1),
        ("medquad-10_0000012-4", "10_0000012-4", 1),
    }


def test_judged_questions_have_their_summary_and_grades_from_0(out: Path) -> None:
    texts = {query.id: query.text for query in read_queries(out / "queries.jsonl")}
    asked = "What is the relationship between Noonan syndrome and polycystic renal disease?"
    assert texts["liveqa-1"] == asked
    assert texts["liveqa-2"] == "Do Zolmitriptan 5mg tablets contain gluten?"
    assert "liveqa-3" not in texts
    assert judgements(out, [name for name, _ in LIVEQA_SPLITS]) == {
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
    with zipfile.ZipFile(source / f"{JUDGED}.zip", "w") as archive:
        lines = "".join(f"{number} 4-Excellent GHR_0000001_Sec1.txt\n" for number in range(8))
        archive.writestr(f"{JUDGED}/All-qrels.txt", lines)
        archive.writestr(f"{JUDGED}/answers.csv", judged_csv())
    done = run(source, liveqa, tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert sorted(map(len, [judgements(tmp_path / "out", [name]) for name, _ in LIVEQA_SPLITS])) == [0, 8]


def test_what_cannot_be_used_is_kept_aside(out: Path) -> None:
    rejects = read(out / "rejects.jsonl")
    assert [(reject["file"], reject["place"]) for reject in rejects] == [
        ("9_CDC_QA/0000009.xml", "file"),
        ("judged answers", "row 3"),
        ("judgements", "line 4"),
        ("judgements", "line 5"),
        ("judgements", "line 6"),
        ("judgements", "line 7"),
    ]
    assert [reject["reason"] for reject in rejects][2:] == [
        "no answer has this id",
        "no answer has this id",
        "no question has this number",
        "expected a question, a judgment such as 4-Excellent, and an answer",
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


def test_a_folder_without_judgements_is_refused(source: Path, liveqa: Path, tmp_path: Path) -> None:
    (source / f"{JUDGED}.zip").unlink()
    done = run(source, liveqa, tmp_path / "out")
    assert done.exit_code == 2
    assert "found nothing" in done.output


def test_a_damaged_zip_is_named(source: Path, liveqa: Path, tmp_path: Path) -> None:
    (source / f"{JUDGED}.zip").write_bytes(b"PK not a zip")
    done = run(source, liveqa, tmp_path / "out")
    assert done.exit_code == 2
    assert f"cannot read {source / JUDGED}.zip" in done.output


def test_wrong_folders_are_named(source: Path, liveqa: Path, tmp_path: Path) -> None:
    done = run(source, tmp_path / "nowhere", tmp_path / "out")
    assert done.exit_code == 2
    assert "expected that file or a checkout of abachaa/LiveQA" in done.output
    for path in source.rglob("*.xml"):
        path.unlink()
    done = run(source, liveqa, tmp_path / "out")
    assert done.exit_code == 2
    assert "expected a checkout of abachaa/MedQuAD" in done.output
    assert not (tmp_path / "out").exists()


def test_fields_are_those_of_the_collection_at_hand(shared_data: Path, out: Path) -> None:
    for name in ("corpus.jsonl", "queries.jsonl"):
        with (shared_data / "medquad" / name).open(encoding="utf-8") as file:
            assert list(json.loads(file.readline())) == list(read(out / name)[0])
