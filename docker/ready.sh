#!/bin/bash
# Readiness of the server in this container: `ready.sh [PATH [PORT]]` exits with 0 if 127.0.0.1 responds to a GET with 200.
#
# It runs every few seconds, so it uses bash: 2 ms of CPU time instead of Python's 165 ms, and no curl in the image.
path=${1:-/readyz} port=${2:-${GLOW_PORT:-8080}}
{ exec 3<>"/dev/tcp/127.0.0.1/$port"; } 2>/dev/null || exit 1
printf 'GET %s HTTP/1.0\r\n\r\n' "$path" >&3
read -r -t 5 _ status _ <&3 || exit 1
[[ $status == 200 ]]
