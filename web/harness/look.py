"""Pictures and frame rates of drawings in Chromium: look.py OUT [NAME=QUERY[;STEPS]]...; needs Playwright.

STEPS run in the page before the picture. Serves harness/ (built into OUT) and the graphs of ../shared/graphs.
"""

import functools
import http.server
import pathlib
import subprocess
import sys
import threading

from playwright.sync_api import sync_playwright

WEB = pathlib.Path(__file__).parent.parent
GRAPHS = WEB.parent.parent / "shared" / "graphs"


class Handler(http.server.SimpleHTTPRequestHandler):
    def translate_path(self, path):
        if path.startswith("/graphs/"):
            return str(GRAPHS / path.partition("?")[0].removeprefix("/graphs/"))
        return super().translate_path(path)

    def log_message(self, *_):
        pass


def main() -> None:
    out = pathlib.Path(sys.argv[1])
    subprocess.run(
        [
            "npx",
            "esbuild",
            "harness/harness.ts",
            "harness/gantt.ts",
            "src/worker.ts",
            "--bundle",
            "--format=esm",
            f"--outdir={out}",
            "--entry-names=[name]",
            "--log-level=warning",
        ],
        cwd=WEB,
        check=True,
    )
    for page in ("index.html", "gantt.html"):
        (out / page).write_text((WEB / "harness" / page).read_text())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(out)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for job in sys.argv[2:]:
            name, _, rest = job.partition("=")
            query, _, steps = rest.partition(";")
            scheme = "dark" if name.endswith("dark") else "light"
            page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
            page.on("console", lambda message: print(message.text))
            page.on("pageerror", lambda error: print("ERROR", error))
            page.goto(f"http://127.0.0.1:{server.server_port}/{query if '.html' in query else 'index.html' + query}")
            page.wait_for_function("window.begun && (!window.dag || dag.scene && dag.edges)", timeout=60000)
            print(name, "drawn after", round(page.evaluate("performance.now()")), "ms")
            if steps:
                print(name, page.evaluate(f"(async () => {{ {steps} }})()"))
            page.wait_for_timeout(600)
            page.screenshot(path=out / f"{name}.png")
            page.close()
        browser.close()


main()
