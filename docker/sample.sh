#!/bin/sh
# Builds an index of the Python documentation of this image, once: an index root with a live version, whatever it holds,
# is left alone, so that nobody's own documents are replaced. Arguments go to `glow build`.
set -eu

if [ -e "$INDEX_ROOT/CURRENT" ]; then
    echo "There is a live version in $INDEX_ROOT already: $(head -n 1 "$INDEX_ROOT/CURRENT")"
    exit 0
fi
python -m glow_demo.python_docs --out /tmp/python-docs.jsonl
exec python -m glow build --input /tmp/python-docs.jsonl --index-root "$INDEX_ROOT" \
    ${BUILD_THREADS:+--threads "$BUILD_THREADS"} "$@"
