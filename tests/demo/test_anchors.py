"""Which object a name in running text means."""

from glow_demo.anchors import MAX_ANCHORS, collect_anchors
from glow_demo.entries import Entry


def _entry(title: str, doc: str = "", kind: str = "function") -> Entry:
    return Entry(title, title, kind, title.rpartition(".")[0], "()", doc)


def test_a_qualified_name_is_a_mention() -> None:
    anchors = collect_anchors([_entry("a.copy", "Like b.move but slow."), _entry("b.move"), _entry("c.move")])
    assert anchors == {"b.move": ["Like b.move but slow."]}


def test_a_called_name_is_looked_up_in_the_nearest_scope_first() -> None:
    anchors = collect_anchors([_entry("a.C.save", "Same as load()."), _entry("a.load"), _entry("b.load")])
    assert anchors == {"a.load": ["Same as load()."]}


def test_a_name_that_may_mean_two_objects_means_none() -> None:
    assert collect_anchors([_entry("a.save", "Same as load()."), _entry("b.load"), _entry("c.load")]) == {}


def test_an_english_word_is_not_a_name() -> None:
    assert (
        collect_anchors([_entry("a.save", "Return a list of open files."), _entry("open"), _entry("list")])
        == {}
    )


def test_a_word_written_as_code_is_a_name() -> None:
    anchors = collect_anchors([_entry("a.save", "Return a SmartDict."), _entry("b.SmartDict", kind="class")])
    assert anchors == {"b.SmartDict": ["Return a SmartDict."]}


def test_an_object_does_not_anchor_itself() -> None:
    assert collect_anchors([_entry("a.save", "save() saves; a.save is its name.")]) == {}


def test_anchors_are_bounded_and_different() -> None:
    entries = [_entry(f"a.f{i}", f"Number {i // 2} of go().") for i in range(30)]
    anchors = collect_anchors([*entries, _entry("b.go")])
    assert len(set(anchors["b.go"])) == len(anchors["b.go"]) == MAX_ANCHORS
