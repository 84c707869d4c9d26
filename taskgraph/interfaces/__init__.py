"""The doors: the command line, the client, the function app, the composition root; no other room imports them."""
