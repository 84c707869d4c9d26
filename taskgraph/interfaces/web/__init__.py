"""The page: files that `scripts/web` builds into the folder `static`, served beside the HTTP API."""
