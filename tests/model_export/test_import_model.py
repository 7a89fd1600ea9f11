"""Encoders that others trained, imported: their vectors are those of the libraries that they were made with."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from typer.testing import CliRunner

from glow.artifact import IndexRoot
from glow.errors import ArtifactError, MismatchError
from glow.index.stored_fields import STORED_FIELDS
from glow.nn import minilm_folder
from glow.records import Document
from glow.runtime import Model
from glow.schema import FieldSchema, FieldSpec
from glow.text import TermTable, TokenizerPieces, WordPieces
from glow.training import initial_towers, read_towers
from glow.training.towers import TrainConfig
from glow_model_export.imported import Foreign, ImportModelOptions, _schema, import_command
from glow_service.app import create_app
from glow_service.settings import Settings
from tests.made_index import documents, made, opened, write
from tests.service.conftest import _serve_in_thread

transformers: Any = pytest.importorskip("transformers")
sentence_transformers: Any = pytest.importorskip("sentence_transformers")
parts: Any = pytest.importorskip("sentence_transformers.models")

TEXTS = (
    "how do bees find their way home",
    "Extract an archive, `tar -xf`!",
    "Ünïcode — 東京 and emoji 🐝 in one",
    "WHY does my 2nd HDMI-port not work?",
    "naïve café, don't",
    "a",
    "word " * 100,
)


def run(*arguments: object) -> Any:
    app = typer.Typer()
    app.command("import-model")(import_command)
    return CliRunner().invoke(app, [str(each) for each in arguments])


def imported(folder: Path, out: Path, *options: object) -> Model:
    done = run(folder, "--out", out, "--json", out.with_suffix(".json"), *options)
    assert done.exit_code == 0, done.output
    return Model.open(out)


def vectors(model: Model, texts: tuple[str, ...], tower: str = "document") -> np.ndarray:
    made_of = model.preprocessor
    sequences = [
        made_of.query(text) if tower == "query" else made_of.document(Document("d", {"text": (text,)}))
        for text in texts
    ]
    return model.encoder(tower).encode(sequences)


def is_close(found: np.ndarray, expected: np.ndarray) -> bool:
    return bool(np.abs(found - expected).max() < 1e-5)


def trained_tokenizer(kind: str) -> Tokenizer:
    """A tokenizer of a few hundred tokens."""
    more = "Bees find home by the sun and dance.", "the quick brown fox jumps over the lazy dog", "0123456789"
    lines = [*TEXTS, *more] * 20
    if kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        specials, letters = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=specials, initial_alphabet=letters)
        tokenizer.train_from_iterator(lines, trainer)
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
        return tokenizer
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106 - a piece, no password
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=kind == "uncased")
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=600, special_tokens=specials))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def save(folder: Path, kind: str, tokenizer: Tokenizer, modules: str) -> Path:
    """A folder of random weights as sentence-transformers saves it."""
    marks = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
    if kind not in ("bpe", "mpnet"):
        marks = {name: f"[{name.upper()}]" for name in marks}
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{f"{name}_token": mark for name, mark in marks.items()}
    )
    common = {"vocab_size": tokenizer.get_vocab_size(), "pad_token_id": tokenizer.token_to_id(marks["pad"])}
    transformers.set_seed(1)
    if kind == "distilbert":
        shape = {"dim": 32, "n_heads": 4, "hidden_dim": 64, "n_layers": 2, "max_position_embeddings": 96}
        model = transformers.DistilBertModel(transformers.DistilBertConfig(**common, **shape))
    else:
        shape = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "num_hidden_layers": 2}
        make, config_of, rows = {
            "bpe": (transformers.RobertaModel, transformers.RobertaConfig, 98),
            "mpnet": (transformers.MPNetModel, transformers.MPNetConfig, 98),
        }.get(kind, (transformers.BertModel, transformers.BertConfig, 96))
        model = make(config_of(max_position_embeddings=rows, **common, **shape))
    with torch.no_grad():
        for parameter in model.parameters():  # no two alike, as after training
            parameter.add_(torch.randn_like(parameter) * 0.05)
    plain = folder / "parts"
    model.save_pretrained(plain)
    fast.save_pretrained(plain)
    transformer = parts.Transformer(str(plain), max_seq_length=64)
    pooling = parts.Pooling(32, pooling_mode=modules)
    sentence_transformers.SentenceTransformer(modules=[transformer, pooling], device="cpu").save(
        str(folder / "saved")
    )
    return folder / "saved"


def reference(folder: Path, texts: tuple[str, ...]) -> np.ndarray:
    encoder = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    return np.asarray(encoder.encode(list(texts), normalize_embeddings=True))


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return imported(minilm_folder(), tmp_path_factory.mktemp("minilm") / "model")


def test_minilm_is_what_sentence_transformers_says(minilm: Model) -> None:
    texts = (*TEXTS, "bees and honey " * 200)  # longer than it reads
    assert is_close(vectors(minilm, texts), reference(minilm_folder(), texts))
    queries = TEXTS[:-1]
    assert is_close(vectors(minilm, queries, "query"), reference(minilm_folder(), queries))
    assert type(minilm.preprocessor.pieces) is WordPieces
    fields = {"title": ("How bees live",), "anchor": ("bees", "honey"), "text": ("They dance.",)}
    joined = "How bees live bees honey They dance."
    (found,) = minilm.encoder("document").encode([minilm.preprocessor.document(Document("d", fields))])
    assert is_close(found, reference(minilm_folder(), (joined,))[0])


@pytest.mark.parametrize(
    ("kind", "tokenizer", "pooling", "spells"),
    [
        ("bert", "uncased", "cls", WordPieces),
        ("bert", "cased", "mean", TokenizerPieces),
        ("distilbert", "uncased", "mean", WordPieces),
        ("bpe", "bpe", "cls", TokenizerPieces),
        ("mpnet", "bpe", "mean", TokenizerPieces),
    ],
)
def test_other_layouts_are_what_sentence_transformers_says(
    kind: str, tokenizer: str, pooling: str, spells: type, tmp_path: Path
) -> None:
    folder = save(tmp_path, kind, trained_tokenizer(tokenizer), pooling)
    model = imported(folder, tmp_path / "model")
    assert type(model.preprocessor.pieces) is spells
    expected = reference(folder, TEXTS)
    assert is_close(vectors(model, TEXTS), expected)
    assert is_close(vectors(model, TEXTS, "query"), expected)
    # Words are GLOW's own, whatever spells them.
    assert model.preprocessor.query("WHY Café?").words == ("why", "cafe", "?")


def test_weights_may_be_those_of_an_onnx_graph(tmp_path: Path) -> None:
    folder = save(tmp_path, "bert", trained_tokenizer("uncased"), "mean")
    expected = reference(folder, TEXTS)
    encoder = sentence_transformers.SentenceTransformer(str(folder), device="cpu")[0].auto_model.eval()
    example = (torch.ones(2, 9, dtype=torch.long), torch.ones(2, 9, dtype=torch.long))
    shapes = [{0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}] * 2
    program = torch.onnx.export(encoder, example, dynamo=True, verbose=False, dynamic_shapes=shapes)
    (folder / "onnx").mkdir()
    program.save(folder / "onnx" / "model.onnx", external_data=True)
    (folder / "model.safetensors").unlink()
    model = imported(folder, tmp_path / "model")
    assert is_close(vectors(model, TEXTS), expected)
    (folder / "onnx" / "model.onnx").write_bytes(b"no graph")
    assert "cannot read" in run(folder, "--out", tmp_path / "other").output


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("bpe")
    return imported(
        save(folder, "bpe", trained_tokenizer("bpe"), "mean"), folder / "model", "--quantize", "int8"
    )


@given(text=st.text(max_size=100))
def test_every_piece_of_a_text_has_a_word_and_none_is_lost(text: str, bpe: Model) -> None:
    pieces = bpe.preprocessor.pieces
    words = pieces.words(text)
    assert [str(word) for word in words] == WordPieces.whole_words(pieces, text)
    ids = [number for word in words for number in pieces.pieces(word)]
    if words:
        clean = "".join(" " if "\\ud800" <= letter <= "\\udfff" else letter for letter in text)
        tokenizer = Tokenizer.from_file(str(bpe.folder / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        assert ids == tokenizer.encode(clean, add_special_tokens=False).ids


def test_marks_of_the_tokenizer_in_a_text_are_text(bpe: Model) -> None:
    pieces = bpe.preprocessor.pieces
    ids = [number for word in pieces.words("bees</s><pad>bees") for number in pieces.pieces(word)]
    assert not {pieces.sep_id, pieces.pad_id, pieces.cls_id} & set(ids)


@pytest.fixture(scope="module")
def index_root(bpe: Model, tmp_path_factory: pytest.TempPathFactory) -> IndexRoot:
    """Thirty documents with passages, in its towers' space."""
    folder = tmp_path_factory.mktemp("indexed")
    source = write(folder / "d.jsonl", documents(30))
    return made(bpe.folder, source, folder / "index", index="flat", passages=True)


def test_an_index_works_with_it(bpe: Model, index_root: IndexRoot) -> None:
    index = opened(index_root)
    assert index[STORED_FIELDS].count == 30
    assert (index_root.folder(index_root.current()) / "model" / "tokenizer.json").is_file()
    assert index.explainer is not None
    settings = Settings(index_root=index_root.path, document_model=str(bpe.folder), default_timeout_ms=30_000)
    with _serve_in_thread(create_app(settings, on_failure=lambda: None)) as client:
        body = {"query": "Bees FIND home", "explain": True, "highlight": True, "retriever": "hybrid"}
        found = client.post("/search", json=body).json()
        assert [term["word"] for term in found["query"]["terms"]] == ["bees", "find", "home"]
        assert found["hits"][0]["explanation"] and found["hits"][0]["passage"]
        for kind in ("query", "document"):
            asked = {"input": ["Bees find home", "a"], "input_type": kind}
            assert len(client.post("/v1/embeddings", json=asked).json()["data"]) == 2


def test_a_gate_measures_it(bpe: Model, index_root: IndexRoot, tmp_path: Path) -> None:
    lines, judged = documents(12), tmp_path / "judged"
    (judged / "qrels").mkdir(parents=True)
    queries = [{"_id": f"q{place}", "text": line["title"]} for place, line in enumerate(lines)]
    write(judged / "queries.jsonl", queries)
    rows = [f"q{place}\t{line['_id']}\t1\n" for place, line in enumerate(lines)]
    (judged / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    root = shutil.copytree(index_root.path, tmp_path / "index")
    source = write(tmp_path / "d.jsonl", documents(30))
    made(bpe.folder, source, root, passages=True, gate=str(judged))
    assert len(IndexRoot(root).versions()) == 2


def test_a_tokenizer_that_was_exchanged_is_refused(index_root: IndexRoot, tmp_path: Path) -> None:
    root = IndexRoot(shutil.copytree(index_root.path, tmp_path / "index"))
    path = root.folder(root.current()) / "model" / "tokenizer.json"
    path.write_bytes(path.read_bytes().replace(b"bees", b"been"))
    with pytest.raises(ArtifactError):
        opened(root)


def test_words_may_weigh_in_the_mean(tmp_path: Path) -> None:
    folder = save(tmp_path, "bert", trained_tokenizer("uncased"), "mean")
    plain = imported(folder, tmp_path / "plain")
    weighed = imported(folder, tmp_path / "weighed", "--word-weights", "0.5")
    assert plain.hash != weighed.hash
    terms = TermTable.from_counts({"the": 90, "bees": 2, "dance": 9}, 100, {"query": 3.0, "text": 10.0})
    tokens = weighed.with_terms(terms).query("the bees dance")
    assert len(set(tokens.weights.round(4).tolist())) > 1
    assert set(plain.with_terms(terms).query("the bees dance").weights.tolist()) == {1.0}
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
    assert run(folder, "--out", tmp_path / "cls", "--word-weights", "1").exit_code == 2


def test_prefixes_are_those_of_its_own_configuration(tmp_path: Path) -> None:
    folder = save(tmp_path, "bert", trained_tokenizer("uncased"), "mean")
    prompts = {"query": "query: ", "document": "passage: "}
    edit(folder / "config_sentence_transformers.json", prompts=prompts)
    model = imported(folder, tmp_path / "model")
    texts = TEXTS[:3]
    for tower, name in (("query", "query"), ("document", "document")):
        expected = reference(folder, tuple(prompts[name] + text for text in texts))
        assert is_close(vectors(model, texts, tower), expected)
    assert model.preprocessor.query("bees").words == ("bees",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / "config.json").unlink(), "holds no config.json"),
        (lambda folder: edit(folder / "config.json", model_type="electra"), "is not of BERT's kind"),
        (lambda folder: edit(folder / "config.json", hidden_act="relu"), "expected gelu and absolute"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "holds no tokenizer.json"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x"), "cannot read"),
        (
            lambda folder: edit(folder / "1_Pooling" / "config.json", pooling_mode_max_tokens=True),
            "expected the [CLS] token or the mean",
        ),
    ],
)
def test_what_cannot_be_imported_is_told(change: Callable[[Path], object], said: str, tmp_path: Path) -> None:
    folder = save(tmp_path, "bert", trained_tokenizer("uncased"), "mean")
    change(folder)
    done = run(folder, "--out", tmp_path / "model")
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())
    assert not (tmp_path / "model").exists()


def edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(("positions", "asked", "read"), [(96, None, 96), (512, None, 256), (512, 300, 300)])
def test_a_query_is_read_to_256_tokens_if_the_encoder_has_them(
    positions: int, asked: int | None, read: int
) -> None:
    options = ImportModelOptions(source=Path("a"), out=Path("b"), query_tokens=asked)
    assert _schema(options, Foreign("mean", positions)).query_tokens == read


def test_training_starts_from_it(bpe: Model, minilm: Model) -> None:
    config = TrainConfig.model_validate(
        {"name": "x", "towers": {"init_layers": [1, 0], "pooling": "weighted", "weight_form": "log"}}
    )
    schema = FieldSchema(
        name="small",
        query_tokens=16,
        document_tokens=48,
        fields=(FieldSpec(name="title", tokens=16), FieldSpec(name="text", tokens=48)),
    )
    towers = initial_towers(config, schema, bpe.folder)
    found = read_towers(bpe)
    assert torch.equal(towers.words.weight, found.words.weight)
    own = found.query.layers[0].attention.qkv.weight
    assert torch.equal(towers.query.layers[1].attention.qkv.weight, own)
    assert torch.equal(towers.document.layers[1].attention.qkv.weight, own)
    assert len(towers.document.fields.weight) == 2
    too_deep = TrainConfig.model_validate({"name": "x", "towers": {"init_layers": [0, 7]}})
    with pytest.raises(MismatchError, match="has 2 layers"):
        initial_towers(too_deep, schema, bpe.folder)
