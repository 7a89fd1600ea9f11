"""Model folders that others made to do harm; each is given to `glow import-model`.

    python -m tests.model_export.hostile_folders SCRATCH

gives every hostile folder to the command in one process, and writes a line of JSON for each: how it ended, what it said, how long
it took, and how much memory the process had taken by then.
"""

import json
import os
import resource
import shutil
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import typer
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from typer.testing import CliRunner

from glow.encoders import EncoderFile, encoder_shapes
from glow_model_export.imported import import_command
from tests.attacks.harness import peak_mb

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PIECES = (*SPECIALS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *".?,;'")
CONFIG = {
    "model_type": "bert",
    "vocab_size": len(PIECES),
    "hidden_size": 8,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "max_position_embeddings": 40,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}
WEIGHTS = "model.safetensors"
JSON_FILES: dict[str, Any] = {
    "config.json": CONFIG,
    "modules.json": [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(
            [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
        )
    ],
    "1_Pooling/config.json": {
        "word_embedding_dimension": 8,
        "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": True,
    },
    "sentence_bert_config.json": {"max_seq_length": 32, "do_lower_case": False},
    "config_sentence_transformers.json": {"prompts": {"query": "find ", "document": ""}},
    "tokenizer_config.json": {"model_max_length": 32, "pad_token": "[PAD]", "do_lower_case": True},
}
FILES = (*JSON_FILES, "tokenizer.json", WEIGHTS)


def make_folder(folder: Path) -> Path:
    """A tiny BERT of random weights, as sentence-transformers saves one."""
    (folder / "1_Pooling").mkdir(parents=True)
    for name, value in JSON_FILES.items():
        (folder / name).write_text(json.dumps(value))
    chance = torch.Generator().manual_seed(0)
    shapes = encoder_shapes(EncoderFile.model_validate_json(json.dumps(CONFIG)))
    save_file(
        {
            name: torch.randn(*shape, generator=chance) * 0.3 + (1.0 if "LayerNorm.weight" in name else 0.0)
            for name, shape in shapes
        },
        folder / WEIGHTS,
    )
    vocabulary = {piece: place for place, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106 - a piece, no password
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def import_folder(folder: Path, out: Path) -> Any:
    """Gives a folder to the command, in this process."""
    app = typer.Typer()
    app.command("import-model")(import_command)
    return CliRunner().invoke(app, [str(folder), "--out", str(out)])


def _text(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def _config(**values: Any) -> Callable[[Path], object]:
    return _text("config.json", json.dumps({**CONFIG, **values}))


def _modules(path: str) -> Callable[[Path], object]:
    modules = [
        {**module, "path": path if module["path"] == "1_Pooling" else module["path"]}
        for module in JSON_FILES["modules.json"]
    ]
    return _text("modules.json", json.dumps(modules))


def _weights(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda folder: (folder / WEIGHTS).write_bytes(change((folder / WEIGHTS).read_bytes()))


def _header(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def changed(data: bytes) -> bytes:
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8 : 8 + size])
        change(header)
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data[8 + size :]

    return _weights(changed)


def _tokenizer(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def changed(folder: Path) -> None:
        spec = json.loads((folder / "tokenizer.json").read_bytes())
        change(spec)
        (folder / "tokenizer.json").write_text(json.dumps(spec))

    return changed


def _sparse(name: str, size_bytes: int) -> Callable[[Path], object]:
    return lambda folder: os.truncate(folder / name, size_bytes)


def _instead(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    def changed(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return changed


KEY = "encoder.layer.0.attention.self.key.weight"
DEEP = "[" * 100_000 + "]" * 100_000
PROMPTS, LENGTHS, TOKENS = (
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "tokenizer_config.json",
)
ENDLESS = {
    "type": "Split",
    "pattern": {"Regex": r"(a|aa|[^b]*)*\1(x+x+)+y"},
    "behavior": "Isolated",
    "invert": False,
}
SWELL = {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 3_000}
AROUND = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "X", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}] * 1_000,
    "pair": [],
    "special_tokens": {"X": {"id": "X", "ids": [1] * 1_000, "tokens": ["X"] * 1_000}},
}
HOSTILE: dict[str, Callable[[Path], object]] = {
    "modules an object": _text("modules.json", '{"a": 1}'),
    "config 100,000 deep": _text("config.json", DEEP),
    "positions a word": _config(max_position_embeddings="abc"),
    "no heads": _config(num_attention_heads=0),
    "prompts no text": _text(PROMPTS, '{"prompts": {"query": 5}}'),
    "prompt of 5 MB": _text(PROMPTS, json.dumps({"prompts": {"query": "bees " * 1_000_000}})),
    "length a word": _text(TOKENS, '{"model_max_length": "x"}'),
    "hidden size 1e9": _config(hidden_size=1_000_000_000),
    "1e6 layers": _config(num_hidden_layers=1_000_000),
    "piece of number 2^31": _tokenizer(lambda spec: spec["model"]["vocab"].update({"bee": 2**31})),
    "shapes of 2^20": _config(hidden_size=1 << 20, intermediate_size=1 << 20, vocab_size=1 << 24),
    "128 layers": _config(num_hidden_layers=128),
    "heads that do not divide": _config(num_attention_heads=3),
    "epsilon NaN": _text("config.json", json.dumps(CONFIG).replace("1e-12", "NaN")),
    "padding beyond positions": _config(model_type="roberta", pad_token_id=2**20),
    "positions beyond the table": _config(max_position_embeddings=41),
    "distances that are not there": _config(model_type="mpnet"),
    "three buckets": _config(model_type="mpnet", relative_attention_num_buckets=3),
    "one position": _config(max_position_embeddings=1),
    "nothing": _text("config.json", ""),
    "config no UTF-8": lambda folder: (folder / "config.json").write_bytes(b'{"a": "\xff\xfe"}'),
    "config of 2 GB": _sparse("config.json", 1 << 31),
    "config a folder": _instead("config.json", Path.mkdir),
    "config a queue": _instead("config.json", os.mkfifo),
    "config of a device": _instead("config.json", lambda path: path.symlink_to("/dev/zero")),
    "100,000 faults": _text("modules.json", json.dumps([{"type": 1}] * 100_000)),
    "a fault in a long name": _text(
        "1_Pooling/config.json", json.dumps({"pooling_mode_" + "x" * 10**6: True})
    ),
    "path above": _modules("../../../../../../etc"),
    "path with a zero": _modules("1_Pooling\0"),
    "path of 100,000": _modules("1_Pooling/" * 10_000),
    "path a link out": lambda folder: ((folder / "out").symlink_to("/etc"), _modules("out")(folder)),
    "path a loop": lambda folder: ((folder / "out").symlink_to("out"), _modules("out/x")(folder)),
    "length 1": _text(LENGTHS, '{"max_seq_length": 1}'),
    "prompt longer than a query": _text(PROMPTS, json.dumps({"prompts": {"query": "a " * 40}})),
    "header of 2^62": _weights(lambda _: struct.pack("<Q", 1 << 62) + b"{}"),
    "weights empty": _weights(lambda _: b""),
    "weights a queue": _instead(WEIGHTS, os.mkfifo),
    "weights missing": lambda folder: (folder / WEIGHTS).unlink(),
    "offsets past the end": _header(lambda header: header[KEY].update(data_offsets=[0, 2**40])),
    "shape of 2^63": _header(lambda header: header[KEY].update(shape=[2**63, 2])),
    "type of integers": _header(lambda header: header[KEY].update(dtype="I32")),
    "another shape": _header(lambda header: header[KEY].update(shape=[4, 16])),
    "a tensor gone": _header(lambda header: header.update(other=header.pop(KEY))),
    "header deep": _weights(lambda _: struct.pack("<Q", len(DEEP)) + DEEP.encode()),
    "weights NaN": _weights(lambda data: data[:-4] + struct.pack("<f", float("nan"))),
    "tokenizer deep": _text("tokenizer.json", DEEP),
    "tokenizer of 2 GB": _sparse("tokenizer.json", 1 << 31),
    "tokenizer that panics on a text": _tokenizer(
        lambda spec: spec.update(pre_tokenizer={"type": "FixedLength", "length": 0})
    ),
    "tokenizer that panics on reading": _tokenizer(
        lambda spec: spec.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"})
    ),
    "tokenizer that aborts": _tokenizer(
        lambda spec: spec.update(
            normalizer={"type": "Precompiled", "precompiled_charsmap": "////f" + "A" * 80 + "==="}
        )
    ),
    "tokenizer whose pattern never ends": _tokenizer(lambda spec: spec.update(pre_tokenizer=ENDLESS)),
    "tokenizer that swells a text": _tokenizer(
        lambda spec: spec.update(normalizer={"type": "Sequence", "normalizers": [SWELL] * 4})
    ),
    "tokenizer that puts a million around": _tokenizer(
        lambda spec: spec.update(normalizer=None, post_processor=AROUND)
    ),
    "tokenizer without the unknown": _tokenizer(
        lambda spec: (spec["model"]["vocab"].pop("[UNK]"), spec.update(pre_tokenizer=None))
    ),
    "no piece": _tokenizer(lambda spec: spec["model"].update(vocab={})),
    "pieces around of number 999,999": _tokenizer(
        lambda spec: spec.update(
            normalizer=None, post_processor={**spec["post_processor"], "cls": ["[CLS]", 999_999]}
        )
    ),
}


def main(scratch: Path) -> None:
    """Every hostile folder, one after the other."""
    good = make_folder(scratch / "good")
    (scratch / "taken").mkdir()
    for name, change in {"good": lambda folder: None, **HOSTILE}.items():
        folder = shutil.copytree(good, scratch / "folder")
        change(folder)
        started = time.monotonic()
        done = import_folder(folder, scratch / ("taken" if name == "good" else "out"))
        figures = {
            "name": name,
            "exit": done.exit_code,
            "said": done.output,
            "raised": repr(done.exception),
            "seconds": time.monotonic() - started,
            "peak_mb": peak_mb(os.getpid()),
        }
        print(json.dumps(figures), flush=True)  # noqa: T201 - a program
        shutil.rmtree(folder)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
    main(Path(sys.argv[1]))
