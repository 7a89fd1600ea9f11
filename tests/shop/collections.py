"""Two collections as people have them, a shop and a help desk, with queries and the documents that are right for each."""

import random
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

Document = dict[str, Any]
FOLDER = Path(__file__).parent
BRANDS = ("Norda", "Talvi", "Kesto", "Brightwell", "Oakline", "Verano", "Pikka", "Zentra")
MANY = {"headphones": 15, "desk lamp": 15}
"""Products of the types that the tests ask most for; the others have seven or eight."""
FITTINGS = (
    "It fits on your desk.",
    "Goes well with our {other}.",
    "A gift for owners of a good {other}.",
    "Tested by {brand} for ten years of use.",
    "Delivered with a guarantee of two years.",
    "Spare parts are in stock.",
    "Packed in cardboard without plastic.",
    "Easy to clean with a damp cloth.",
    "Not made to replace your {other}.",
)
OPENINGS = (
    "Hello, I need your help.",
    "Good morning.",
    "Third time that I write.",
    "It is urgent.",
    "Dear team,",
    "Since {day} I have a problem.",
)
CLOSINGS = (
    "Please call me back.",
    "What can I do?",
    "I look forward to your reply.",
    "Kind regards, {customer}",
    "I expect an answer by Friday.",
    "Thanks, {customer}",
)
FIRST = "Ada Bruno Chioma Dmitri Elif Farid Greta Hugo Ines Jonas Keiko Lea".split()
LAST = "Abel Borg Castro Dahl Eriksen Fontana Gruber Haas Ivanova Jansen Kowal".split()


class Case(NamedTuple):
    """A query, the ids of all documents that answer it, and what kind of query it is."""

    query: str
    right: frozenset[str]
    kind: str


def _rows(name: str) -> list[list[str]]:
    return [line.split("|") for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def _day(rng: random.Random, year: int) -> str:
    return str(date(year, 1, 1) + timedelta(days=rng.randrange(365)))


def products() -> list[Document]:
    """345 products; part numbers of neighbors differ in one digit, and other products are mentioned in passing."""
    rng = random.Random(64)  # noqa: S311 - test data
    rows = _rows("product_types.txt")
    names = [row[0] for row in rows if row[0] not in MANY]
    kinds = [
        (row, at) for number, row in enumerate(rows) for at in range(MANY.get(row[0], 7 + (number < 37)))
    ]
    rng.shuffle(kinds)
    seen: set[str] = set()
    found: list[Document] = []
    for number, (row, at) in enumerate(kinds[:345]):
        name, category, prices, features, sizes, use, detail, _ = row
        brand = BRANDS[at % len(BRANDS)]
        title = ""
        while not title or title in seen:
            feature, size = (rng.choice(each.split(", ")) for each in (features, sizes))
            title = f"{brand} {feature} {name.title()} {size}"
        seen.add(title)
        low, high = map(int, prices.split("-"))
        # A mention is a match by words: none makes a product that is no lamp hold both words of "desk lamp".
        fittings = FITTINGS[1:] if category == "lighting" else FITTINGS
        extra = rng.choice(fittings).format(other=rng.choice(names), brand=brand)
        if category == "audio" and name != "headphones" and at % 4 == 0:
            extra = "Use it with your headphones."
        sentences = [use, detail, extra]
        if rng.random() < 0.3:
            sentences.pop(1)
        found.append({
            "_id": f"SKU-{100 + number:05}",
            "title": title,
            "text": " ".join(sentences),
            "brand": brand,
            "category": category,
            "type": name,
            "price": round(rng.uniform(low, high), 2),
            "rating": round(rng.uniform(2.5, 5), 1),
            "in_stock": rng.random() < 0.8,
            "added": _day(rng, rng.choice((2023, 2024, 2025))),
            "sku": f"{brand[0]}{brand[2].upper()}-{4400 + number}",
        })  # fmt: skip
    return found


def tickets() -> list[Document]:
    """Ten tickets of each of sixty subjects, by different customers in different words."""
    rng = random.Random(46)  # noqa: S311 - test data
    subjects = _rows("ticket_subjects.txt") * 10
    rng.shuffle(subjects)
    found: list[Document] = []
    for number, (title, team, one, two, _) in enumerate(subjects):
        customer = f"{rng.choice(FIRST)} {rng.choice(LAST)}"
        told = rng.choice((one, two, f"{one} {two}", f"{two} {one}"))
        opened = _day(rng, rng.choice((2024, 2025)))
        frame = f"{rng.choice(OPENINGS)} {told} {rng.choice(CLOSINGS)}"
        found.append({
            "_id": f"T-{10400 + number}",
            "title": title,
            "text": frame.format(day=opened, customer=customer),
            "status": rng.choice(("open", "pending", "solved", "closed")),
            "priority": rng.choice(("low", "normal", "high", "urgent")),
            "team": team,
            "opened": opened,
            "customer": customer,
        })  # fmt: skip
    return found


def _ids(documents: Iterable[Document], **values: str) -> frozenset[str]:
    return frozenset(
        each["_id"] for each in documents if all(each[name] == value for name, value in values.items())
    )


def _some_words(documents: list[Document], of: Document, rng: random.Random) -> Case:
    """Two or three words of a title, in its order; right are all documents whose titles hold them all."""
    words = [word for word in of["title"].split() if len(word) > 3 or any(map(str.isdigit, word))]
    places = sorted(rng.sample(range(len(words)), min(len(words), max(2, min(3, len(words) - 1)))))
    some = [words[place] for place in places]
    right = frozenset(each["_id"] for each in documents if set(some) <= set(each["title"].split()))
    return Case(" ".join(some).lower(), right, "title words")


def product_queries() -> list[Case]:
    """What people type into a shop's search box."""
    every, rng = products(), random.Random(1)  # noqa: S311 - test data
    cases: list[Case] = []
    for row in _rows("product_types.txt"):
        cases.append(Case(row[0], _ids(every, type=row[0]), "type"))
        cases.append(Case(f"what do I need to {row[-1]}", _ids(every, type=row[0]), "question"))
    cases += (Case(brand.lower(), _ids(every, brand=brand), "brand") for brand in BRANDS)
    pairs = sorted({(each["brand"], each["type"]) for each in every})
    for brand, name in rng.sample(pairs, 100):
        cases.append(Case(f"{brand.lower()} {name}", _ids(every, brand=brand, type=name), "brand and type"))
    for each in rng.sample(every, 100):
        own = frozenset([each["_id"]])
        cases += (Case(each["title"], own, "title"), Case(each["_id"], own, "part number"))
        cases.append(Case(each["sku"], _ids(every, sku=each["sku"]), "sku"))
        cases.append(_some_words(every, each, rng))
    return cases


def ticket_queries() -> list[Case]:
    """What the people of a help desk type, and questions in the words of a customer."""
    every, rng = tickets(), random.Random(2)  # noqa: S311 - test data
    cases: list[Case] = []
    for title, *_, question in _rows("ticket_subjects.txt"):
        right = _ids(every, title=title)
        cases += (Case(title, right, "title"), Case(question, right, "question"))
        cases.append(_some_words(every, {"title": title}, rng))
    for each in rng.sample(every, 60):
        cases.append(Case(each["_id"], frozenset([each["_id"]]), "ticket number"))
    return cases


def off_subject_queries() -> list[str]:
    """Queries that neither collection answers, half of them questions."""
    return (FOLDER / "off_subject.txt").read_text(encoding="utf-8").splitlines()
