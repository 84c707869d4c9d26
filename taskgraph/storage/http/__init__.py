"""The store behind a server of the HTTP API: it reads; what is to be written, the server is asked for."""
