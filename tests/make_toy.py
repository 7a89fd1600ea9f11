"""Makes the toy model and the toy re-ranker of the toy corpus in tests/data: `python tests/make_toy.py [reranker]`.

The model is two untrained towers of 32 dimensions. Their layers start small, so a vector is close to the mean of its
word vectors and words in common decide: enough for every part of the path to be checked in milliseconds.
The re-ranker is an untrained cross-encoder of as many. Needs torch; what it writes is committed, so tests do not.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch

from glow.collection import read_documents
from glow.index import RerankWeight
from glow.nn import CrossConfig, CrossEncoder, TowerConfig, TwoTowers
from glow.schema import FieldSchema
from glow.text import Preprocessor, TermCounter, Weighting, WordPieces, field_words, load_preprocessor
from glow_model_export.graph import torch_source
from glow_model_export.package import export_model
from glow_model_export.rerank import RerankSource, export_reranker

DATA = Path(__file__).parent / "data"
CORPUS = DATA / "toy-corpus.jsonl"


def main() -> None:
    """Writes tests/data/toy-model."""
    schema = FieldSchema.preset("glow-default").model_copy(update={"query_tokens": 24, "document_tokens": 64})
    with tempfile.TemporaryDirectory() as scratch:
        vocabulary = Path(scratch) / "vocab.txt"
        vocabulary.write_text("\n".join(_pieces()) + "\n", encoding="utf-8")
        pieces = WordPieces(vocabulary)
        counter = TermCounter()
        for document in read_documents(CORPUS, schema.names):
            counter.add(field_words(document, schema, pieces))
            counter.add_query(["four", "words", "a", "query"])
        preprocessor = Preprocessor(pieces, schema, Weighting(), counter.table())
        torch.manual_seed(0)
        config = TowerConfig(vocabulary=pieces.size, hidden=32, layers=2, heads=4, intermediate=64)
        towers = TwoTowers(config, schema).eval()
        with torch.no_grad():
            for parameter in towers.parameters():
                if parameter.ndim == 1:  # the exporter would merge biases and norms that are still equal
                    parameter.add_(torch.randn_like(parameter) * 0.02)
            towers.words.weight.normal_(0.0, 1.0)
        shutil.rmtree(DATA / "toy-model", ignore_errors=True)
        export_model(torch_source(towers, preprocessor, {"toy": True}, {}), DATA / "toy-model", "none")


def make_reranker() -> None:
    """Writes tests/data/toy-reranker, which reads what the toy model reads."""
    preprocessor = load_preprocessor(DATA / "toy-model")
    schema = preprocessor.schema
    config = CrossConfig(
        vocabulary=preprocessor.pieces.size,
        hidden=32,
        layers=3,
        split=2,
        heads=4,
        intermediate=64,
        compressed=16,
        late=16,
        query_tokens=schema.query_tokens,
        document_tokens=schema.document_tokens,
        fields=len(schema.fields),
    )
    torch.manual_seed(1)
    model = CrossEncoder(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        model.words.weight.normal_(0.0, 1.0)
    shutil.rmtree(DATA / "toy-reranker", ignore_errors=True)
    source = RerankSource(model, preprocessor, {"toy": True}, {})
    export_reranker(source, DATA / "toy-reranker", "none", rerank_weight=RerankWeight(share=0.5))


def _pieces() -> list[str]:
    """A vocabulary that spells every word of the corpus, some only as several subword tokens."""
    with tempfile.TemporaryDirectory() as scratch:
        bare = Path(scratch) / "vocab.txt"
        bare.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n", encoding="utf-8")
        splitter = WordPieces(bare)
        texts = [json.loads(line)["text"] for line in CORPUS.read_text(encoding="utf-8").splitlines()]
        words = sorted({word for text in texts for word in splitter.words(text)})
    letters = sorted(
        {letter for word in words for letter in word} | set("abcdefghijklmnopqrstuvwxyz0123456789")
    )
    # Every fourth long word is left out, so that it becomes several tokens, which divide its weight.
    whole = [word for number, word in enumerate(words) if len(word) > 1 and number % 4]
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters), *whole]


if __name__ == "__main__":
    if sys.argv[1:] != ["reranker"]:
        main()
    make_reranker()
