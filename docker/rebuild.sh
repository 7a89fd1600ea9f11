#!/bin/sh
# The batch job: builds a version, runs the gate if `--gate` is given, publishes the version, and removes old ones.
#
#     rebuild.sh --input /input/documents.jsonl [--gate /input/judged] [any option of `glow build`]
#
# The exit status is that of the build: 6 if the gate refused. Old versions are removed even then, because a job that
# is refused every night would fill the disk; the live version and those for a rollback stay (docs/versions.md).
set -u

status=0
python -m glow build --index-root "$INDEX_ROOT" \
    ${BUILD_THREADS:+--threads "$BUILD_THREADS"} "$@" || status=$?
case $status in 0 | 6) ;; *) exit "$status" ;; esac
python -m glow gc --index-root "$INDEX_ROOT" --keep "${KEEP_VERSIONS:-3}" || exit $((status ? status : $?))
exit "$status"
