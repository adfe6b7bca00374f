#!/usr/bin/env bash
# A stdio program: one JSON request on stdin, one JSON response on stdout. It "creates" a database and says where it is. It
# may run more than once for one generation, and always ends in the same place.
set -euo pipefail
request=$(cat)
network=''
if [[ $request =~ \"network\":[[:space:]]*\"([^\"\\]*)\" ]]; then
  network=${BASH_REMATCH[1]}
fi
endpoint="$CONVERGE_NAME.$network:5432"
printf '{"status": {"endpoint": "%s"}, ' "$endpoint"
printf '"conditions": [{"type": "Ready", "status": "True", "reason": "Created"}]}\n'
