"""Training of glow-mini's towers, on one GPU; with fewer steps also on a CPU.

Data are packages of Debian, tldr and MedQuAD (docs/data.md), in directories of BEIR's layout. UNPACKED has documentation packages.
data/words also had manual pages and docstrings (docs/data.md).
ENCODER is all-mpnet-base-v2 (docs/models.md), IMPORTED what `glow import-model ENCODER --out IMPORTED` made of it.

    python -m research debian --sources books --whole-sections --root / --root UNPACKED --out data/books
    python -m research debian --sources packages --out data/packages
    python -m research debian --sources wordnet,dictionaries --out data/words
    python -m research links --root UNPACKED --out data/links
    python -m research encoders texts --data $DATA/tldr --data $DATA/medquad --data data/books … --count 1800000 --out texts.txt

    python -m research encoders pack --model models/glow-mini --data $DATA/tldr --data $DATA/medquad --data data/books … --work work
    python -m research encoders prepare --model models/glow-mini --teacher IMPORTED --texts texts.txt --work work
    python -m research encoders towers --model models/glow-mini --work work --out runs/mini
    glow export-model --checkpoint runs/mini --out models/mini --parity-data $DATA/tldr

Queries are the layers of an imported encoder, unchanged: MINILM for glow-mini. glow-base is all-mpnet-base-v2 for both (docs/models.md).

    python -m research encoders join --model models/mini --encoder MINILM --out runs/joined
    glow export-model --checkpoint runs/joined --out models/glow-mini --quantize int8 --parity-data $DATA/tldr
"""
