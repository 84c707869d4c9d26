"""`python -m taskgraph`, and the console script: the door of the command line.

What this room is for: handing over to `taskgraph.cli`. It never does anything itself.
"""

from taskgraph.cli import main

if __name__ == "__main__":
    main()
