# ruff: noqa: S310, T201 - an example speaks on the terminal, with the server that it is given
"""Submits a graph, waits for its end by long polls, and prints what a task has handed on; without packages.

API=… TOKEN=… python3 client.py FILE ID LABEL
"""

import json
import os
import sys
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

API = os.environ.get("API", "http://127.0.0.1:8080/api/v1")
TOKEN = os.environ.get("TOKEN", "none")


def call(method, path, body=None):
    """The answer. The same is sent again while the server is away, or busy: it does no harm twice."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    pause = 0.2
    while True:
        try:
            with urlopen(Request(f"{API}{path}", body, headers, method=method), timeout=60) as answer:
                return json.load(answer)
        except HTTPError as error:
            if error.code < 500 and error.code != 429:
                sys.exit(json.load(error)["detail"])
        except OSError as error:
            print(error, file=sys.stderr)
        time.sleep(pause)
        pause = min(pause * 2, 5)


file, graph, label = sys.argv[1:]
call("PUT", f"/graphs/{graph}", Path(file).read_bytes())
cursor = "0"
while (state := call("GET", f"/graphs/{graph}")["state"]) in ("submitting", "running", "cancelling"):
    for event in call("GET", f"/graphs/{graph}/events?since={cursor}&wait=25&where.event=graph-*")["events"]:
        cursor = event["cursor"]
if state != "finished":
    sys.exit(f"graph {graph} is {state}")
print(json.dumps(call("GET", f"/graphs/{graph}/results").get(label)))
