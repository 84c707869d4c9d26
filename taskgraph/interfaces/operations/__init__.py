"""What people and programs may ask a store for: one module an operation, the same for every door.

What this room is for: the command line and the Python API say what is wanted, and word the answers; what is between
lies here. `ask` checks that it can be done, says so where it cannot, and puts the messages down; `settled` waits until
handlers have done it, and raises Refused where they will not. It never writes a row of a graph and never decides about
tasks; handlers do (D16). It never formats for a terminal.
"""
