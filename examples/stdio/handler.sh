#!/usr/bin/env bash
# One program, two roles: it composes a site (kind stdio-composer) and makes the networks and services the site consists of
# (kind stdio). One JSON request on stdin, one JSON response on stdout; stderr is the worker's log. Exit 2 says that trying
# again cannot help, any other failure is tried again.
set -euo pipefail

request=$(cat)
get() { jq -r "$1" <<<"$request"; }
give_up() {
  echo "$1" >&2
  exit 2
}

# A site: one network, one service per name. Each service waits for the network, and the address of its subnet flows in.
compose() {
  jq -e '.spec.services | type == "array" and length > 0' <<<"$request" >/dev/null || give_up "spec.services: name at least one"
  jq '
    .name as $site
    | ($site + "-net") as $net
    | {
        children: (
          [{kind: "stdio", name: $net, spec: {make: "network"}}]
          + [.spec.services[] | {kind: "stdio", name: "\($site)-\(.)", spec: {make: "service", service: .}, labels: {site: $site}}]
        ),
        edges: [
          .spec.services[]
          | {
              from: {kind: "stdio", name: "\($site)-\(.)"},
              to: {kind: "stdio", name: $net},
              values: [{dependent_field: "subnet", source_field: "/subnet"}]
            }
        ],
        status: {services: (.spec.services | length)}
      }' <<<"$request"
}

# A thing of the outside world, here a file. The same request must end in the same state however often it is run, so what
# was made before is found again, not made twice.
work() {
  local state=${EXAMPLE_TMP:?the example sets it}/$CONVERGE_NAME
  case $(get .spec.make) in
    network)
      if [[ ! -e $state ]]; then
        echo "making network $CONVERGE_NAME" >&2
        echo "10.$((RANDOM % 256)).0.0/16" >"$state.$CONVERGE_CLAIM_EPOCH"
        mv "$state.$CONVERGE_CLAIM_EPOCH" "$state" # whole or not at all
      fi
      jq -n --arg subnet "$(cat "$state")" \
        '{status: {subnet: $subnet}, conditions: [{type: "Ready", status: "True", reason: "Made"}]}'
      ;;
    service)
      local subnet
      subnet=$(get '.spec.subnet // empty')
      [[ -n $subnet ]] || give_up "spec.subnet is missing: it comes from the network"
      jq -n --arg address "$(get .spec.service).${subnet%%/*}" \
        '{status: {address: $address}, conditions: [{type: "Ready", status: "True", reason: "Made"}]}'
      ;;
    *) give_up "spec.make: \"$(get .spec.make)\" is neither network nor service" ;;
  esac
}

case $(get .reaction) in
  compose) compose ;;
  work) work ;;
  *) give_up "no reaction $(get .reaction) here" ;;
esac
