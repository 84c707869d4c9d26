"""The invariants of a graph's rows: what is wrong in them, in words, with the repair that is certain, or why none is.

What this room is for: plain functions over rows and a time. Edges name each other from both sides; `requiresLeft` holds
what has not completed, and nothing else; a task is ready when nothing is left; counts count; the journal has no gap.
Steps that are legal but unheard (an ended lease, a relay that stands ready) are findings too, `due` ones, for the
sweep. A repair is proposed only where the rows leave no doubt; it names the etags that it rests on. It never reads a
store, never writes, and never judges rows of a newer schema.

Each rule is a function of a snapshot; `examine` says which of them hold in which state of a graph. Every finding lists
the keys of all rows that it rests on: rows of a scan were read one after the other, so a finding counts only when those
rows, read again without a change in between, still say it.
"""
