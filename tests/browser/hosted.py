"""A static host as any is: it gives files with their types, and knows nothing else."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from azure.storage.blob import ContainerClient


@dataclass(slots=True)
class Host:
    """files: path to bytes, media type, Cache-Control. missed: paths that were asked for and are none."""

    address: str
    files: dict[str, tuple[bytes, str, str]] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)

    def show(self, files: Mapping[str, tuple[bytes, str, str]]) -> None:
        """By their names; the index stands at the root, too."""
        self.files.update((f"/{name}", file) for name, file in files.items())
        self.files["/"] = self.files["/index.html"]

    def take(self, container: ContainerClient) -> None:
        """Show what lies there, as the service would."""
        found = {}
        for blob in container.list_blobs():
            kind = blob.content_settings
            data = container.download_blob(blob.name).readall()
            found[blob.name] = data, str(kind.content_type), str(kind.cache_control)
        self.show(found)


@contextmanager
def hosting() -> Iterator[Host]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = host.files.get(self.path.partition("?")[0])
            if found is None:
                host.missed.append(self.path)
                self.send_error(404)
                return
            data, kind, keep = found
            self.send_response(200)
            for name, value in (("Content-Type", kind), ("Cache-Control", keep), ("Content-Length", str(len(data)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    host = Host(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield host
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
