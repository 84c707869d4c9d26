# The command of the task `discover`: look what there is, and add a task for each thing to the graph that runs it.
#
# `taskgraph extend` finds the store by TASKGRAPH_STORE, which every command of a task is given; where that holds a key
# (a connection string), only if the worker was started with --with-store. It waits until the
# tasks are in: a task that completes before that may be the last of its graph, and a finished graph takes no more.
# Run twice, after a crash, it asks for the same tasks again, which adds nothing.
set -eu

# From a checkout, taskgraph is in .venv/bin; otherwise it is where PATH says.
PATH="$PATH:$PWD/.venv/bin"
found=$(mktemp)
trap 'rm -f "$found"' EXIT

separator=""
{
    printf '{"tasks": {'
    for file in examples/*.json; do
        name=$(basename "$file")
        printf '%s"measure %s": {"requires": ["discover"], "task": {"payload": {"command": ["wc", "-c", "%s"]}}}' \
            "$separator" "$name" "$file"
        separator=", "
    done
    printf ', "summary": {"requires": ['
    separator=""
    for file in examples/*.json; do
        printf '%s"measure %s"' "$separator" "$(basename "$file")"
        separator=", "
    done
    printf '], "task": {"payload": {"command": ["echo", "all measured"]}}}}}\n'
} >"$found"

cat "$found"
taskgraph extend "$TASKGRAPH_GRAPH_ID" "$found"
