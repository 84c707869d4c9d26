#!/bin/sh
# Submits a graph with curl, and prints its status: API=… TOKEN=… sh submit.sh FILE ID
set -eu
: "${API:=http://127.0.0.1:8080/api/v1}" "${TOKEN:=none}"

ask() {
    curl -sS --fail-with-body --retry 8 --retry-connrefused -H "Authorization: Bearer $TOKEN" "$@"
    echo
}

ask -X PUT --data-binary "@$1" "$API/graphs/$2" # the same again does no harm
ask "$API/graphs/$2"
