#!/usr/bin/env bash
# A stdio program: one JSON request on stdin, one JSON response on stdout. With `jq` the request is taken apart in one line;
# this one needs nothing but bash, so it looks for the one member it wants.
set -euo pipefail
request=$(cat)
words='hello'
if [[ $request =~ \"words\":[[:space:]]*\"([^\"\\]*)\" ]]; then
  words=${BASH_REMATCH[1]}
fi
echo "greeting for ${CONVERGE_NAME}, ${#request} characters of request" >&2 # stderr goes to the worker's log
printf '{"status": {"greeting": "%s from %s", "language": "bash"}, ' "$words" "$CONVERGE_NAME"
printf '"conditions": [{"type": "Ready", "status": "True", "reason": "Greeted", "message": "said %s"}]}\n' "$words"
