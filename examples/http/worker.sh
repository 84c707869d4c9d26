#!/bin/sh
# A worker in POSIX shell with curl, that runs commands, one at a time: API=… TOKEN=… TARGET=… sh worker.sh
set -u
: "${API:=http://127.0.0.1:8080/api/v1}" "${TOKEN:=none}" "${TARGET:=default}" "${WORKER:=$(uname -n)-$$}" "${LEASE:=60}"

# METHOD PATH, and what else curl takes. Fails for a claim that is another's by now; otherwise the same is sent again.
ask() {
    method=$1 path=$2
    shift 2
    curl -fsS --retry 8 --retry-connrefused --retry-max-time "$LEASE" -X "$method" -H "Authorization: Bearer $TOKEN" "$@" "$API$path"
}

log=$(mktemp)
pid='' beat='' claim=''
stop() {
    [ -z "$pid" ] || { kill "$beat" "$pid" && ask POST "/runs/$claim:hand-back" --data '{"reason": "stopped"}'; }
    rm -f "$log"
    exit 0
} >/dev/null 2>&1
trap stop TERM INT HUP

while :; do
    wanted="{\"worker\": \"$WORKER\", \"wait\": 5, \"leaseSeconds\": $LEASE}"
    task=$(ask POST "/targets/$TARGET:claim" -H 'Accept: text/x-shellscript' --data "$wanted") || { sleep 1 && continue; }
    [ -n "$task" ] || continue
    eval "$task" # claim, graph, label, run, command
    if [ -z "$command" ]; then
        ask POST "/runs/$claim:fail" --data '{"end": "exception", "reason": "the payload has no command"}'
        continue
    fi >/dev/null
    sh -c "exec $command" >"$log" 2>&1 </dev/null &
    pid=$!
    while sleep $((LEASE / 3)) && kill -0 "$pid"; do # a signal that comes as it begins is lost
        ask PUT "/runs/$claim/log" -T "$log"
        case $(ask POST "/runs/$claim:renew" --data '{}' || echo '"cancel":true') in *'"cancel":true'*) kill "$pid" ;; esac
    done >/dev/null 2>&1 &
    beat=$!
    wait "$pid"
    code=$? pid=''
    kill "$beat"
    ask PUT "/runs/$claim/log" -T "$log" >/dev/null
    if [ "$code" -eq 0 ]; then
        ask POST "/runs/$claim:complete" --data '{}'
    else
        ask POST "/runs/$claim:fail" --data "{\"reason\": \"exit code $code\", \"exitCode\": $code}"
    fi >/dev/null
done
