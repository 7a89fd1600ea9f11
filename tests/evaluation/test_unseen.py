"""Queries apart whose relevant documents another split never showed."""

from glow.evaluation import evaluate, unseen_queries
from glow.records import Hit, Qrel

TRAIN = [Qrel("t1", "shown", 1), Qrel("t1", "rejected", 0), Qrel("t2", "also", 1)]
DEV = [
    Qrel("one-shown", "shown", 1),
    Qrel("one-shown", "new", 1),
    Qrel("all-new", "new", 2),
    Qrel("shown-as-bad", "rejected", 1),
    Qrel("bad-is-shown", "also", 1),
    Qrel("bad-is-shown", "new", 2),
    Qrel("nothing", "shown", 0),
]


def test_one_shown_relevant_document_is_enough_to_be_seen() -> None:
    assert unseen_queries(DEV, TRAIN) == {"all-new", "shown-as-bad", "nothing"}


def test_rel_raises_the_bar_of_the_measured_split_only() -> None:
    assert unseen_queries(DEV, TRAIN, rel=2) == {q.query_id for q in DEV}
    assert unseen_queries([Qrel("q", "shown", 2)], TRAIN, rel=2) == set()


def test_a_split_that_shows_nothing_leaves_every_query() -> None:
    assert unseen_queries(DEV, [Qrel("t", "shown", 0)]) == {q.query_id for q in DEV}


def test_an_evaluation_of_some_queries_keeps_order_and_values() -> None:
    run = {"all-new": [Hit("x", 2.0), Hit("new", 1.0)], "shown-as-bad": [Hit("rejected", 1.0)]}
    part = evaluate(run, DEV, ["RR@10"]).only(unseen_queries(DEV, TRAIN))
    assert part.queries == ("all-new", "shown-as-bad", "nothing")
    assert part.per_query["RR@10"] == {"all-new": 0.5, "shown-as-bad": 1.0, "nothing": 0.0}
    assert part.means == {"RR@10": 0.5}


def test_no_query_has_no_mean() -> None:
    none = evaluate({}, DEV, ["RR@10"]).only([])
    assert (none.queries, none.means, none.per_query) == ((), {}, {"RR@10": {}})
