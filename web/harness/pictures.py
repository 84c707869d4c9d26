"""Pictures of the page over real graphs, which run for it: pictures.py [--all OUT] [--at ADDRESS] [NAME]...

Without --all it makes those of docs/pictures, or the named ones of them, as WebP. With it, each view in both themes and
three widths, as PNG, to be looked at; names are patterns of files then. --at: of a server that `--serve` has started.
It needs the page (scripts/web), Playwright, Chromium, and ../shared/graphs.
"""

import argparse
import base64
import gzip
import itertools
import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, nullcontext
from urllib.parse import quote

from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRAPHS = ROOT.parent / "shared" / "graphs"
TASKGRAPH = [sys.executable, "-m", "taskgraph"]
KEPT = ROOT / "docs" / "pictures"
SIZES = {"1440": (1440, 900), "1024": (1024, 768), "390": (390, 844)}
THEMES = ("light", "dark")
RUN_SECONDS = 240
LIVE_SECONDS = 9  # how long a graph has run whose rest is forecast
WAIT_SECONDS = 1.2  # a drawing is laid out in a worker, and comes in with the next frames

PICTURES = {  # name: route, theme, height
    "graphs": ("/", "light", 480),
    "dag": ("/g/lld/dag?sel=bin%2Fllvm-tblgen", "light", 640),
    "focus": ("/g/translations/dag?focus=train-backwards-en-fi&depth=1", "dark", 640),
    "timeline": ("/g/translations/time?by=worker", "light", 600),
    "forecast": ("/g/LIVE/time?forecast=1&by=target", "light", 600),
    "why": ("/g/translations/t/all-en-fi-1/why", "light", 580),
    "plan": ("/g/translations/plan?change=rerun&failed=1", "light", 560),
}
WIDTH = 1200
KILOBYTES_MAX = 80
QUALITIES = (0.85, 0.75, 0.65, 0.55, 0.45, 0.35, 0.25, 0.15)


def document(name, *, seconds, failing, roll, instant=0):
    """A graph whose tasks sleep for about so long; some fail. instant: so many of the first do nothing."""
    path = GRAPHS / name
    data = json.loads(gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes())
    required = {each for one in data["tasks"].values() for each in one["requires"]}
    tasks = {}
    for place, (label, one) in enumerate(data["tasks"].items()):
        lasts = round(seconds * roll.lognormvariate(0, 0.9), 3)
        task = {"executor": "sleep", "payload": {"seconds": lasts}} if place >= instant else {"executor": "noop"}
        late = place > len(data["tasks"]) * 0.5
        if late and label in required and roll.random() < failing:
            task = {"payload": {"command": ["sh", "-c", f"echo '{label}: no space left on device' >&2; exit 28"]}}
        tasks[label] = {"requires": one["requires"], "task": task}
    return {"metadata": {"name": path.name.split(".")[0]}, "tasks": tasks}


def submit(store, graph, made, *tags, wait=False):
    made["tags"] = dict(each.split("=") for each in tags)
    typed = [*TASKGRAPH, "submit", "-", "--id", graph, "--store", store, *(["--wait"] if wait else [])]
    subprocess.run(typed, input=json.dumps(made), text=True, check=True, stdout=subprocess.DEVNULL)


def fill(store):
    """The first graph ends before the others come: a worker that has just begun looks for work more rarely."""
    roll = random.Random(16)
    for past in (1, 2):
        submit(store, f"mosaic-{past}", mosaic(past), wait=True)
    express = document("npm-express.json", seconds=0.1, failing=0, roll=roll)
    translations = document("mozilla-translations-train.json", seconds=0.4, failing=0.02, roll=roll)
    lld = document("ninja-llvm-lld.json.gz", seconds=0, failing=0.003, roll=roll, instant=9_999)
    tigerbeetle = document("githistory-tigerbeetle.json.gz", seconds=3, failing=0, roll=roll, instant=2_000)
    submit(store, "express", express, "team=web", wait=True)
    submit(store, "translations", translations, "team=translations", "pair=en-fi")
    submit(store, "lld", lld, "team=toolchain")
    submit(store, "tigerbeetle", tigerbeetle)
    waits = {"tasks": {f"shard {n}": {"task": {"target": "gpu", "executor": "noop"}} for n in range(12)}}
    submit(store, "train-0412", waits, "team=translations")


def mosaic(number):
    """The same graph each time, a little slower or faster, before all others."""
    made = document("wf-montage-2mass-005d.json", seconds=2.5, failing=0, roll=random.Random(4))
    roll = random.Random(number)
    for each in made["tasks"].values():
        payload = each["task"]["payload"]
        payload["seconds"] = round(payload["seconds"] * roll.lognormvariate(0, 0.15), 3)
    return {**made, "metadata": {"name": "mosaic"}, "priority": "highest"}


def begun(address):
    """The id of a graph that has run for a while, and before."""
    graph = f"mosaic-{int(time.time())}"
    submit(f"{address}/api", graph, mosaic(3))
    time.sleep(LIVE_SECONDS)
    return graph


@contextmanager
def served():
    """The address of a server over a store with the graphs, when the first two of them have come to rest."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/store.db"
        typed = [*TASKGRAPH, "serve", "--worker", "10", "--http", "0", "--no-auth", "--store", store]
        server = subprocess.Popen(typed, stderr=subprocess.PIPE, text=True)
        try:
            address = re.search(r"http://127\.0\.0\.1:\d+", server.stderr.readline())[0]
            subprocess.run([*TASKGRAPH, "pause", "--target", "gpu", "--reason", "driver update", "--store", store],
                           check=True, stdout=subprocess.DEVNULL)  # fmt: skip
            fill(store)
            end = time.monotonic() + RUN_SECONDS
            for graph in ("translations", "lld"):
                while time.monotonic() < end:
                    said = subprocess.run([*TASKGRAPH, "status", graph, "--json", "--store", store],
                                          capture_output=True, text=True, check=True)  # fmt: skip
                    counts = json.loads(said.stdout)["counts"]
                    if counts["failed"] and counts["pending"] + counts["running"] == 0:
                        break
                    time.sleep(3)
            yield address
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate()


def opened(browser, address, route, theme, size):
    page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=theme, reduced_motion="reduce")
    page.on("pageerror", lambda error: print("ERROR", route, error))
    page.goto(f"{address}/#{route}")
    page.wait_for_function(
        "() => document.querySelector('main') && !document.querySelector('.loading, [aria-busy=true]')"
    )
    page.wait_for_timeout(WAIT_SECONDS * 1000)
    return page


def webp(browser, png, quality):
    """By the browser, which packs pictures, too."""
    page = browser.new_page()
    packed = page.evaluate(
        """async ([data, quality]) => {
      const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
      const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
      const canvas = new OffscreenCanvas(image.width, image.height);
      canvas.getContext("2d").drawImage(image, 0, 0);
      const blob = await canvas.convertToBlob({ type: "image/webp", quality });
      return btoa(Array.from(new Uint8Array(await blob.arrayBuffer()), (each) => String.fromCharCode(each)).join(""));
    }""",
        [base64.b64encode(png).decode(), quality],
    )
    page.close()
    return base64.b64decode(packed)


def views(failed):
    """Each one, by a name for its file."""
    for name in ("", "schedules", "workers", "queues", "poison", "doctor", "compare?a=translations&b=lld"):
        yield name.partition("?")[0] or "graphs", f"/{name}"
    for graph in ("translations", "lld", "tigerbeetle"):
        for view in ("", "dag", "time", "tasks", "events", "at", "plan?change=rerun&failed=1"):
            yield f"{graph}-{view.partition('?')[0] or 'summary'}", f"/g/{graph}/{view}"
    named = f"/g/translations/t/{quote(failed, safe='')}"
    yield from (("task", named), ("log", f"{named}/log"), ("why", "/g/translations/t/all-en-fi-1/why"))
    yield from (("lanes", "/g/translations/time?by=worker"), ("focus", "/g/lld/dag?focus=bin%2Flld&depth=1"))
    yield from (("folded", "/g/translations/dag?fold=train,alignments,evaluate"), ("notices", "/g/lld/notices"))
    yield from (("edit", "/g/translations/plan?change=edit"), ("sound", "/g/lld/doctor"))


def first_failed(store_address, browser):
    page = opened(browser, store_address, "/g/translations/tasks?state=failed", "light", SIZES["1440"])
    label = page.locator("[role=row] a.label").first.inner_text()
    page.close()
    return label


def main():
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("--all", metavar="OUT", type=pathlib.Path)
    read.add_argument("--at", metavar="ADDRESS")
    read.add_argument("--serve", action="store_true", help="only that, until it is interrupted")
    read.add_argument("names", nargs="*")
    given = read.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the server ends with this
    if given.serve:
        with served() as address:
            print(address, flush=True)
            signal.pause()
    with nullcontext(given.at) if given.at else served() as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        if given.all:
            given.all.mkdir(parents=True, exist_ok=True)
            for name, route in views(first_failed(address, browser)):
                for theme, (width, size) in itertools.product(THEMES, SIZES.items()):
                    file = f"{name}-{theme}-{width}.png"
                    if given.names and not any(re.search(each, file) for each in given.names):
                        continue
                    page = opened(browser, address, route, theme, size)
                    page.screenshot(path=given.all / file)
                    page.close()
        else:
            for name, (route, theme, height) in PICTURES.items():
                if given.names and name not in given.names:
                    continue
                if "LIVE" in route:
                    route = route.replace("LIVE", begun(address))
                page = opened(browser, address, route, theme, (WIDTH, height))
                png = page.screenshot()
                page.close()
                packed = next(each for quality in QUALITIES
                              if len(each := webp(browser, png, quality)) <= KILOBYTES_MAX * 1000)  # fmt: skip
                (KEPT / f"{name}.webp").write_bytes(packed)
                print(f"{name}: {len(packed) / 1000:.0f} kB")
        browser.close()


main()
