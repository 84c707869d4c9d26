"""What would happen: graphs run by the real handlers and the real worker in virtual time, over a store in memory."""
