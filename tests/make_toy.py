"""Makes the toy model, the toy re-ranker and the toy corpus in tests/data: `python tests/make_toy.py [reranker]`.

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
TOPICS = {
    "bees": "Honey bees find the way home by the sun, by landmarks and by the smell of their hive.",
    "ants": "Ants lay a trail of scent from the nest to food, and others follow it.",
    "whales": "Blue whales eat krill, which they filter from the sea with plates of baleen.",
    "owls": "Owls hunt at night; soft feathers let them fly without a sound.",
    "salmon": "Salmon swim up the river in which they hatched to lay their eggs.",
    "bats": "Bats call in high tones and hear the echo from moths in the dark.",
    "spiders": "Spiders spin webs of silk that is stronger than steel of the same weight.",
    "wolves": "Wolves live in packs and hunt deer and elk together.",
    "camels": "Camels store fat in the hump and can go for weeks without water.",
    "penguins": "Emperor penguins keep one egg warm on their feet through the winter.",
    "bread": "Bread rises because yeast makes gas in the dough; kneading gives it strength.",
    "cheese": "Cheese is made from milk that rennet has set, and ripens for months.",
    "coffee": "Coffee beans are roasted seeds; a finer grind gives a stronger cup.",
    "tea": "Green tea is not fermented; water just below boiling brings out its taste.",
    "rice": "Rice is washed before cooking, and rests under a lid when the water is gone.",
    "soup": "A clear soup begins with bones and vegetables that simmer for hours.",
    "chocolate": "Chocolate comes from cocoa beans, which are fermented, dried and roasted.",
    "salt": "Salt draws water from food, which keeps it from spoiling.",
    "onions": "Cutting onions frees a gas that makes the eyes water; a sharp knife helps.",
    "eggs": "A fresh egg sinks in water and an old one floats.",
    "moon": "The moon always shows the earth the same side and pulls the tides.",
    "tides": "Tides rise twice a day as the moon and the sun pull at the sea.",
    "rainbow": "A rainbow forms when drops of rain break the light of a low sun.",
    "thunder": "Thunder is the sound of air that lightning has heated in an instant.",
    "snow": "Snow is white because its crystals scatter all colours of light.",
    "volcano": "A volcano erupts when melted rock and gas rise from below the crust.",
    "earthquake": "An earthquake begins where two plates of the crust slip past each other.",
    "desert": "A desert gets less rain than it could lose, and is cold at night.",
    "glacier": "A glacier is a river of ice that carves a valley as it flows.",
    "comet": "A comet is a ball of ice and dust whose tail points away from the sun.",
    "bicycle": "A bicycle stays upright because it steers into a fall.",
    "train": "A train has steel wheels on steel rails, so little power is lost to friction.",
    "ship": "A ship floats because it weighs less than the water that it pushes aside.",
    "plane": "A plane flies because its wings turn air downwards.",
    "rocket": "A rocket throws gas backwards and is pushed forwards, even in empty space.",
    "clock": "A clock with a pendulum keeps time by the length of its swing.",
    "lock": "A lock opens when the key lifts every pin to the right height.",
    "battery": "A battery turns the energy of two metals in acid into current.",
    "bridge": "A hanging bridge carries its road on cables between two towers.",
    "lens": "A lens bends light to a point; two of them make a telescope.",
    "backup": "A backup of files belongs on another disk, and is tested by restoring it.",
    "password": "A long password of several words is hard to guess and easy to remember.",
    "index": "A search index lists for every word the documents that hold it.",
    "cache": "A cache keeps the answers that were asked for last close at hand.",
    "compiler": "A compiler turns the text of a program into instructions of a machine.",
    "café": "A café serves coffee, crème brûlée and naïve poems; accents must not hide it.",
    "東京": "東京 is the capital of Japan; 日本 writes without spaces between words.",
    "garden": "A garden needs compost, sun and water; mulch keeps weeds away.",
    "guitar": "A guitar sounds when its strings shake the air inside the body.",
    "chess": "In chess a game ends when the king can no longer escape an attack.",
}


def main() -> None:
    """Writes tests/data/toy-corpus.jsonl and tests/data/toy-model."""
    corpus = DATA / "toy-corpus.jsonl"
    lines = [json.dumps(_document(number, topic), ensure_ascii=False) for number, topic in enumerate(TOPICS)]
    corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
    schema = FieldSchema.preset("glow-default").model_copy(update={"query_tokens": 24, "document_tokens": 64})
    with tempfile.TemporaryDirectory() as scratch:
        vocabulary = Path(scratch) / "vocab.txt"
        vocabulary.write_text("\n".join(_pieces()) + "\n", encoding="utf-8")
        pieces = WordPieces(vocabulary)
        counter = TermCounter()
        for document in read_documents(corpus, schema.names):
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


def _document(number: int, topic: str) -> dict[str, object]:
    return {
        "_id": f"toy/{number}",
        "url": f"https://www.example.org/{'nature' if number < 10 else 'things'}/{topic}{number}.html",
        "title": topic.capitalize(),
        "anchor": [f"about {topic}", f"more on {topic}"] if number % 3 == 0 else [],
        "clicked_queries": [f"what about {topic}"] if number % 2 == 0 else [],
        "text": TOPICS[topic],
        "lang": "en",
        "year": 2000 + number % 25,
    }


def _pieces() -> list[str]:
    """A vocabulary that spells every word of the corpus, some only as several subword tokens."""
    with tempfile.TemporaryDirectory() as scratch:
        bare = Path(scratch) / "vocab.txt"
        bare.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n", encoding="utf-8")
        splitter = WordPieces(bare)
        words = sorted({word for text in TOPICS.values() for word in splitter.words(text)})
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
