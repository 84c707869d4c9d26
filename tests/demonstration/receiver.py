"""A receiver of webhooks in a process of its own: each body is a line of a file before it is answered.

python -m tests.demonstration.receiver PORT FILE
"""

import http.server
import os
import sys


def main(port: int, path: str) -> None:
    """Receive until killed."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            os.write(file, body + b"\n")
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
