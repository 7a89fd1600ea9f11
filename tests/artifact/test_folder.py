"""An artifact folder exists whole or not at all."""

import stat
from pathlib import Path

import pytest

from glow.artifact import verify, write_artifact
from glow.errors import BuildError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_crash_in_the_block_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), write_artifact(tmp_path / "v1", "index") as writer:
        (writer.folder / "half").write_text("half")
        raise error
    assert names(tmp_path) == []


def test_a_crash_in_the_block_leaves_an_older_artifact_as_it_was(artifact: Path) -> None:
    before = verify(artifact, "index")
    with pytest.raises(ValueError), write_artifact(artifact, "index", replace=True) as writer:
        (writer.folder / "half").write_text("half")
        raise ValueError
    assert verify(artifact, "index") == before
    assert names(artifact.parent) == ["v1"]


def test_nothing_is_visible_before_the_block_ends(tmp_path: Path) -> None:
    with write_artifact(tmp_path / "deep" / "v1", "model") as writer:
        (writer.folder / "file").write_text("x")
        assert not (tmp_path / "deep" / "v1").exists()
    assert verify(tmp_path / "deep" / "v1", "model").kind == "model"


def test_an_existing_artifact_is_not_overwritten_unless_asked(artifact: Path) -> None:
    before = verify(artifact, "index")
    with pytest.raises(BuildError, match="exists already"), write_artifact(artifact, "index"):
        pass
    assert verify(artifact, "index") == before


def test_an_artifact_is_replaced_whole(artifact: Path) -> None:
    with write_artifact(artifact, "index", replace=True) as writer:
        (writer.folder / "other").write_text("x")
    assert list(verify(artifact, "index").files) == ["other"]
    assert names(artifact) == ["manifest.json", "other"]
    assert names(artifact.parent) == ["v1"]


def test_a_replacement_that_cannot_move_in_gives_the_old_one_back(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may fail between the two renames; the model must not be gone then."""
    before = verify(artifact, "index")
    rename = Path.rename

    def fail_to_move_in(self: Path, target: Path) -> Path:
        if target == artifact and not self.name.endswith("-old"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_to_move_in)
    with pytest.raises(OSError), write_artifact(artifact, "index", replace=True) as writer:
        (writer.folder / "other").write_text("x")
    assert verify(artifact, "index") == before
    assert names(artifact.parent) == ["v1"]


def test_another_user_can_read_an_artifact(artifact: Path) -> None:
    """A service often runs as another user than the builder."""
    assert stat.S_IMODE(artifact.stat().st_mode) == 0o755
