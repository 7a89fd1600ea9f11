#!/bin/bash
# Whether the server in this container is ready: `ready.sh [PATH [PORT]]` ends with 0 where 127.0.0.1 answers a GET with 200.
#
# Docker asks every few seconds, so bash does it: 2 ms of CPU time where Python takes 165, and no curl in the image.
path=${1:-/readyz} port=${2:-${GLOW_PORT:-8080}}
{ exec 3<>"/dev/tcp/127.0.0.1/$port"; } 2>/dev/null || exit 1
printf 'GET %s HTTP/1.0\r\n\r\n' "$path" >&3
read -r -t 5 _ status _ <&3 || exit 1
[[ $status == 200 ]]
