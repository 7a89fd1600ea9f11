"""A command that is killed leaves the old version live or the new one, and ends well when it is run again."""

from tests.program import answer_of


def test_twenty_seeded_kills_leave_old_or_new_and_nothing_between() -> None:
    report = answer_of("tests.lifecycle.crash", "--runs", 20, "--seed", 11, timeout=300)
    assert report["runs"] == 20 and set(report["live"]) == {"old", "new"}
    assert min(report["moments"].values()) > 3  # each command was watched at work
