#!/bin/sh
# Plans a rerun of all that failed, and makes just that, with curl: API=… TOKEN=… sh plan.sh ID
set -eu
: "${API:=http://127.0.0.1:8080/api/v1}" "${TOKEN:=none}"
graph=$1 change='{"change": "rerun", "failed": true, "reason": "planned"}'

# QUERY, and what else curl takes: the answer, and its status.
ask() {
    query=$1
    shift
    curl -sS -H "Authorization: Bearer $TOKEN" --data "$change" -w '\nHTTP %{http_code}\n' "$@" "$API/graphs/$graph/changes?$query"
}

plan=$(ask dryRun=1)
printf '%s\n' "$plan"
digest=$(printf '%s\n' "$plan" | sed -n 's/.*"plan":"\(sha256:[0-9a-f]*\)".*/\1/p')
[ -n "$digest" ]
ask "plan=$digest" --fail-with-body -H 'Prefer: wait=20' # 200: made. 202: asked for. 412: something has moved since
ask "plan=$digest"                                       # 412, with the new plan: this one has been made
