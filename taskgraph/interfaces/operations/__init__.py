"""What people and programs may ask a store for, the same for the command line and the Python API.

`ask` checks that it can be done, raises Refused where it cannot, and sends the messages; `settled` waits until handlers
have done it. Handlers alone write rows of a graph and decide about tasks (D16).
"""
