#!/usr/bin/env bash
# A composer in bash: one resource becomes a graph of scripts. It answers with the children that should exist, and with edges: who
# waits for whom, and which value of one's status flows into the other's spec. Exit 2 says that trying again cannot help.
#
#   network ── /stdout ──► one backend per region ── /stdout ──► front
set -euo pipefail -f
request=$(cat)
site=$CONVERGE_NAME

# The one member it reads: "regions": ["eu", "us"]. With `jq` this is a line; here it is bash alone.
[[ $request =~ \"regions\":[[:space:]]*\[([^]]*)\] ]] || { echo 'spec.regions: list at least one region' >&2; exit 2; }
regions=()
for region in ${BASH_REMATCH[1]//[\",]/ }; do
  [[ $region =~ ^[a-z][a-z0-9]*$ ]] || { echo "spec.regions: \"$region\" is not letters and digits" >&2; exit 2; }
  regions+=("$region")
done
((${#regions[@]})) || { echo 'spec.regions: list at least one region' >&2; exit 2; }

# child NAME SCRIPT: the scripts below hold no double quote, backslash or line break, so they are JSON strings as they are.
child() { printf '{"kind": "stdshell", "name": "%s-%s", "spec": {"script": "%s"}, "labels": {"site": "%s"}}' "$site" "$1" "$2" "$site"; }
# flow FROM TO VARIABLE: what TO printed becomes a variable of FROM, which does not start before that.
flow() {
  printf '{"from": {"kind": "stdshell", "name": "%s-%s"}, "to": {"kind": "stdshell", "name": "%s-%s"}, ' "$site" "$1" "$site" "$2"
  printf '"values": [{"dependent_field": "/env/%s", "source_field": "/stdout"}]}' "$3"
}

# The pauses stand for work, so that there is something to see.
children=$(child network 'sleep 0.7; printf 10.42.0.0/16')
children+=", $(child front "sleep 0.4; printf '%s ' ${regions[*]/#/\$BACKEND_}")"
edges='' pause=0
for region in "${regions[@]}"; do
  pause=$((pause % 9 + 2))
  children+=", $(child "$region" "sleep 0.$pause; printf %s $region@\${NETWORK%%/*}")"
  edges+="${edges:+, }$(flow "$region" network NETWORK), $(flow front "$region" "BACKEND_$region")"
done
printf '{"children": [%s], "edges": [%s], "status": {"regions": %d}}\n' "$children" "$edges" "${#regions[@]}"
