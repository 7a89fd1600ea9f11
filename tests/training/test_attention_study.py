"""The case study of attention: what words score, where texts and idf come from, the table and the picture."""

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from typer.testing import CliRunner

from glow.errors import ArtifactNotFoundError, ConfigError, InputError
from glow.records import Document
from glow.runtime import Model
from glow.text import Preprocessor, WeightedTokens, Weighting, WordPieces
from glow.text.batch import pad
from glow.text.bm25 import idf_smooth
from glow.training.checkpoint import save_checkpoint
from glow.training.from_model import read_towers
from research.attention.__main__ import app
from research.attention.report import MAX_PANELS, draw_study, study_markdown
from research.attention.studied import CorpusTerms, StudiedModel, open_studied, read_texts
from research.attention.study import TOP, Attended, Rows, Score, StudiedText, study, token_scores, word_scores


@pytest.fixture(scope="module")
def model(toy_model: Path) -> StudiedModel:
    """The toy model, its last layer's attention made uneven."""
    opened = open_studied([toy_model])[0]
    torch.manual_seed(0)
    for tower in (opened.towers.query, opened.towers.document):
        torch.nn.init.normal_(tower.layers[-1].attention.qkv.weight, std=0.3)
    return opened


@pytest.fixture(scope="module")
def corpus(model: StudiedModel, collection_folder: Path) -> list[Document]:
    return read_texts(collection_folder, model.preprocessor.schema.names, "dev", 5)[0]


@pytest.fixture(scope="module")
def plain(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy model's towers as a checkpoint of the same name that reads no weights."""
    folder = tmp_path_factory.mktemp("checkpoint") / "toy-model"
    own = Model.open(toy_model)
    preprocessor = Preprocessor(
        own.preprocessor.pieces, own.preprocessor.schema, Weighting(formula="none"), own.preprocessor.terms
    )
    save_checkpoint(folder, read_towers(own), preprocessor, {})
    return folder


def tokens(words: tuple[str, ...], word_ids: list[int]) -> WeightedTokens:
    """Tokens of which only words matter."""
    zeros = np.zeros(len(word_ids), np.int64)
    return WeightedTokens(zeros, zeros, np.array(word_ids), np.ones(len(word_ids), np.float32), words, {})


def test_a_words_score_is_summed_over_its_pieces_and_places() -> None:
    scores = np.array([0.25, 0.125, 0.0625, 0.03125, 0.0078125, 0.5, 0.015625], np.float32)
    found = tokens(("sodium", ".", "sodium"), [-1, 0, 0, 1, -1, 2, -1])
    assert word_scores(scores, found) == ({"sodium": 0.6875}, 0.3046875)


def test_where_pieces_count_as_words_the_whole_word_is_scored(toy_model: Path) -> None:
    """The ablation `tw`."""
    pieces = WordPieces(toy_model / "vocab.txt", "piece")
    words = tuple(pieces.words("whales zzz bat whales"))
    assert any(word.startswith("##") for word in words)
    ones = np.ones(len(words), np.float32)
    sums, _ = word_scores(ones, tokens(words, list(range(len(words)))))
    assert list(sums) == ["whales", "zzz", "bat"]
    assert sums["zzz"] == 3.0
    assert sums["whales"] == 2 * len(pieces.words("whales"))


@pytest.mark.parametrize("rows", ["cls", "all", "states"])
def test_token_scores_are_what_the_tower_says(
    model: StudiedModel, corpus: list[Document], rows: Rows
) -> None:
    """Against loops over heads and tokens; attention sums to 1."""
    tower, sequence = model.towers.document, model.preprocessor.document(corpus[0])
    batch = pad([sequence], model.preprocessor.pieces.pad_id)
    inputs = [torch.from_numpy(part) for part in (batch.ids, batch.mask, batch.field_ids, batch.weights)]
    with torch.no_grad():
        attention, states = tower.attention(*inputs)[0].numpy(), tower.states(*inputs)[0].numpy()
    length = len(sequence)
    expected = np.zeros(length)
    for j in range(length):
        for i in range(length):
            if rows == "states":
                expected[j] += float(states[i] @ states[j]) / (length - 1) if i != j else 0.0
            elif rows == "all" or i == 0:
                expected[j] += np.mean([head[i, j] for head in attention]) / (length if rows == "all" else 1)
    found = token_scores(tower, sequence, model.preprocessor.pieces.pad_id, rows)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)
    if rows != "states":
        assert found.sum() == pytest.approx(1.0, abs=1e-5)
        assert found.std() > 0.001


def test_a_study_names_the_best_words_of_each_model_beside_the_heaviest(
    model: StudiedModel, plain: Path, corpus: list[Document]
) -> None:
    """A model that reads no weights changes nothing about the BM25F words."""
    bert = StudiedModel("bert", open_studied([plain])[0].towers, open_studied([plain])[0].preprocessor)
    (both,) = study([bert, model], corpus, corpus[:1], "cls")
    (alone,) = study([model], corpus, corpus[:1], "cls")
    assert both.heaviest == alone.heaviest
    assert both.heaviest[0].word == "bees"
    assert list(both.models) == ["bert", "toy-model"]
    assert both.models["toy-model"] == alone.models["toy-model"]
    own = CorpusTerms(corpus).on(model.preprocessor, model.preprocessor.weighting)
    sequence = own.document(corpus[0])
    scores = token_scores(model.towers.document, sequence, own.pieces.pad_id, "cls")
    sums, left_out = word_scores(scores, sequence)
    found = alone.models["toy-model"]
    assert [item.word for item in found.words] == sorted(sums, key=lambda word: (-sums[word], word))[:5]
    assert sum(sums.values()) + found.left_out == pytest.approx(1.0, abs=1e-5)
    assert left_out == found.left_out > 0


def test_idf_comes_from_the_corpus_at_hand(model: StudiedModel, corpus: list[Document]) -> None:
    few = corpus[:3]
    weighing = CorpusTerms(few).on(model.preprocessor, Weighting())
    assert weighing.terms.documents == 3
    assert weighing.weigher.idf("bees") == pytest.approx(idf_smooth(1.0, 3.0))
    pad_id, sequence = weighing.pieces.pad_id, weighing.document(few[0])
    sums, _ = word_scores(token_scores(model.towers.document, sequence, pad_id, "cls"), sequence)
    attended = [study([model], some, few[:1], "cls")[0].models["toy-model"] for some in (few, corpus)]
    assert [item.value for item in attended[0].words] == sorted(sums.values(), reverse=True)[:5]
    assert attended[0] != attended[1]
    heavy = [study([model], some, few[:1], "cls")[0].heaviest[0] for some in (few, corpus)]
    assert heavy[0].word == heavy[1].word == "bees"
    assert heavy[0].value < heavy[1].value


def test_documents_are_drawn_from_those_that_a_split_judges_relevant(
    collection_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "corpus.jsonl").write_bytes((collection_folder / "corpus.jsonl").read_bytes())
    (tmp_path / "qrels").mkdir()
    rows = [f"a{number}\ttoy/{number}\t{number % 2}" for number in range(40)]  # odd ones are relevant
    (tmp_path / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(rows) + "\n")
    draws = [read_texts(tmp_path, ["title"], "dev", 6)[1] for _ in range(2)]
    numbers = [int(text.id.removeprefix("toy/")) for text in draws[0]]
    assert draws[0] == draws[1]
    assert len(numbers) == 6
    assert all(number % 2 for number in numbers)
    assert numbers == sorted(numbers)


def test_a_split_that_judges_nothing_here_is_refused(collection_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_bytes((collection_folder / "corpus.jsonl").read_bytes())
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\na\telsewhere\t1\n")
    with pytest.raises(InputError, match=r"split 'dev' .* judges none of its documents"):
        read_texts(tmp_path, ["title"], "dev", 5)


def test_models_of_one_name_are_told_apart_and_one_folder_twice_is_refused(
    toy_model: Path, plain: Path, tmp_path: Path
) -> None:
    assert [found.name for found in open_studied([toy_model])] == ["toy-model"]
    assert [found.name for found in open_studied([toy_model, plain])] == [str(toy_model), str(plain)]
    with pytest.raises(ConfigError, match="same folder twice"):
        open_studied([plain, plain / "." / "terms" / ".."])
    with pytest.raises(ArtifactNotFoundError):
        open_studied([tmp_path])


def text(words: dict[str, float], title: str = "A title") -> StudiedText:
    """A text with the heavy words `low` and `sodium`, and one model's words."""
    found = Attended(tuple(Score(word, value) for word, value in words.items()), 0.25)
    return StudiedText("d|1", title, (Score("sodium", 7.31), Score("low", 3.0)), {"toy-model": found})


def test_the_table_marks_shared_words_and_lets_no_markup_through(model: StudiedModel) -> None:
    texts = [text({"sodium": 0.5, "causes": 0.125}, "a|b **c**\n<d>"), text({"low": 0.5, "sodium": 0.25})]
    lines = study_markdown(texts, [model], "cls").splitlines()
    assert lines[0] == f"| document | BM25F: heaviest {TOP} | toy-model |"
    title = "a\\|b \\*\\*c\\*\\* \\<d\\> (d\\|1)"
    assert lines[2] == f"| {title} | sodium 7.3, low 3.0 | **sodium** 50.0%, causes 12.5% |"
    assert lines[-1].startswith(
        "- toy-model: on average 1.5 of its 5 words are BM25F's; 25% of the attention"
    )
    assert "--rows all" in lines[-1]  # the toy model's vector is a mean
    assert "--rows all" not in study_markdown(texts, [model], "all")
    assert "25% of" not in study_markdown(texts, [model], "states")
    assert "no word" in study_markdown([text({})], [model], "cls")


def test_the_picture_has_a_panel_a_text_and_bars_by_agreement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A title like a formula is shown as it is."""
    drawn: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure,
        "savefig",
        lambda self, path: (drawn.append(self), save(self, path)),
    )
    texts = [text({"sodium": 0.5, "causes": 0.125}, "$x^{$ and PATH"), text({"low": 0.25})]
    path = tmp_path / "study.png"
    draw_study(texts, "cls", path)
    assert path.read_bytes().startswith(b"\x89PNG")
    first, second = drawn[0].get_axes()
    assert [bar.get_width() for bar in first.patches] == [50.0, 12.5]  # type: ignore[attr-defined]  # the type is what is tested
    assert [to_hex(bar.get_facecolor()) for bar in first.patches] == [
        to_hex("tab:green"),
        to_hex("tab:orange"),
    ]
    assert [label.get_text() for label in first.get_yticklabels()] == ["sodium", "causes"]
    assert [bar.get_width() for bar in second.patches] == [25.0]  # type: ignore[attr-defined]  # the type is what is tested
    assert first.get_ylim() == second.get_ylim()
    assert first.yaxis_inverted()


def test_a_picture_of_another_kind_or_of_too_many_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ends in \.png"):
        draw_study([text({"low": 0.5})], "cls", tmp_path / "study.gif")
    with pytest.raises(ConfigError, match=f"at most {MAX_PANELS} texts, not {MAX_PANELS + 1}"):
        draw_study([text({"low": 0.5})] * (MAX_PANELS + 1), "cls", tmp_path / "s.png")
    with pytest.raises(InputError, match="cannot write"):
        draw_study([text({"low": 0.5})], "cls", tmp_path / "absent" / "s.png")


def test_the_command_writes_table_and_picture(
    toy_model: Path, plain: Path, collection_folder: Path, tmp_path: Path
) -> None:
    run = CliRunner().invoke
    models = ["--model", str(toy_model), "--model", str(plain)]
    words = [*models, "--data", str(collection_folder), "--threads", "1"]
    done = run(app, [*words, "--count", "2", "--picture", str(tmp_path / "a.png")])
    assert done.exit_code == 0, done.output
    table = done.stdout.splitlines()[2:4]
    assert all(line.count("%") == 2 * TOP for line in table), table
    assert (tmp_path / "a.png").stat().st_size > 10_000
    assert run(app, [*words, "--rows", "all", "--count", "2"]).stdout != done.stdout
    wrong = run(app, [*words, "--split", "none"])
    assert wrong.exit_code == 2
