#!/bin/sh
# Builds an index of this image's Python documentation, unless the index root already has a live version, so that it
# never replaces other documents. Arguments go to `glow build`.
set -eu

if [ -e "$INDEX_ROOT/CURRENT" ]; then
    echo "$INDEX_ROOT already has a live version: $(head -n 1 "$INDEX_ROOT/CURRENT")"
    exit 0
fi
python -m glow_demo.python_docs --out /tmp/python-docs.jsonl
exec python -m glow build --input /tmp/python-docs.jsonl --index-root "$INDEX_ROOT" \
    ${BUILD_THREADS:+--threads "$BUILD_THREADS"} "$@"
