"""The folder for a CUDA machine: code, data, initial weights and small packages, as one zip file of bounded size."""

import json
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from safetensors.torch import load_file, save_file

from glow.errors import ConfigError, DependencyError

__all__ = ["MAX_BYTES", "pack"]

ROOT = Path(__file__).parents[2]
MAX_BYTES = 60 * 1024 * 1024
CODE = ("glow", "research", "tests/gpu", "configs")
SUFFIXES = (".py", ".toml", ".json")
PACKAGES = (
    "accelerate annotated-types iniconfig ir-measures packaging pluggy psutil pydantic pydantic-core pygments pystemmer pytest "
    "pytrec-eval-terrier pyyaml safetensors tokenizers tqdm typing-extensions typing-inspection wordninja"
).split()
"""What `glow.training`, the grid's measures and the tests run with beside torch and numpy; the machine has the same Python as this one."""
SPLITS = ("train", "dev")
LAYERS = (0, 4, 5)
"""Of MiniLM, which every variant of the grid starts from; all six would not fit."""


def pack(data: Sequence[Path], init: Path, out: Path, max_bytes: int = MAX_BYTES) -> dict[str, int]:
    """Writes the zip file.

    Args:
        data: data folders in our layout; their splits train and dev go along.
        init: BERT-layout folder; its word table and layers 0, 4 and 5 go along, in fp16.
        out: file to write.
        max_bytes: what it may have.

    Returns:
        Packed bytes of each part.

    Raises:
        ConfigError: if it has more, with the size of each part; the file is left out then.
    """
    with zipfile.ZipFile(out, "w", zipfile.ZIP_LZMA) as archive:
        for part in CODE:
            for path in sorted((ROOT / part).rglob("*")):
                if path.suffix in SUFFIXES and "__pycache__" not in path.parts:
                    archive.write(path, path.relative_to(ROOT))
        for folder in data:
            for name, text in _data(folder):
                archive.writestr(f"data/{folder.resolve().name}/{name}", text)
        with tempfile.TemporaryDirectory() as scratch:
            _init(init, archive, Path(scratch))
        _packages(archive)
    sizes: dict[str, int] = {}
    with zipfile.ZipFile(out) as archive:
        for item in archive.infolist():
            part = item.filename.partition("/")[0]
            sizes[part] = sizes.get(part, 0) + item.compress_size
    if out.stat().st_size > max_bytes:
        out.unlink()
        shown = ", ".join(f"{part} {size / 2**20:.1f}" for part, size in sizes.items())
        raise ConfigError(
            f"the pack has more than {max_bytes / 2**20:.0f} MiB: {shown}; leave a data folder out"
        )
    return sizes


def _data(folder: Path) -> Iterator[tuple[str, str]]:
    """The documents, the judgements of the splits, and the queries that they judge."""
    judged: set[str] = set()
    for split in SPLITS:
        text = (folder / "qrels" / f"{split}.tsv").read_text(encoding="utf-8")
        judged.update(line.partition("\t")[0] for line in text.splitlines()[1:])
        yield f"qrels/{split}.tsv", text
    lines = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    yield "queries.jsonl", "".join(line for line in lines if json.loads(line)["_id"] in judged)
    yield "corpus.jsonl", (folder / "corpus.jsonl").read_text(encoding="utf-8")


def _init(init: Path, archive: zipfile.ZipFile, scratch: Path) -> None:
    kept = {
        name: tensor.half().contiguous()
        for name, tensor in load_file(init / "model.safetensors").items()
        if "encoder.layer." not in name or int(name.split("layer.")[1].partition(".")[0]) in LAYERS
    }
    save_file(kept, scratch / "model.safetensors")
    archive.write(scratch / "model.safetensors", "init/model.safetensors", zipfile.ZIP_STORED)
    for name in ("config.json", "vocab.txt"):
        archive.write(init / name, f"init/{name}")


def _packages(archive: zipfile.ZipFile) -> None:
    """The installed files of `PACKAGES`, below `site`.

    Raises:
        DependencyError: if one is not installed here.
    """
    for name in PACKAGES:
        try:
            files = distribution(name).files or ()
        except PackageNotFoundError as error:
            raise DependencyError(f"{name} is not installed; run `make setup` first") from error
        for path in files:
            # Commands lie outside the packages' folder, and byte code is made anew.
            if ".." not in path.parts and path.suffix != ".pyc":
                archive.write(path.locate(), Path("site", path))
