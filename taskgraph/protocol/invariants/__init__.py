"""The invariants of a graph's rows: what is wrong in them, in words, with the repair that is certain, or why none is.

Each rule is a plain function of a snapshot (rows and a time); `examine` says which of them hold in which state of a
graph. Steps that are legal and not taken (an ended lease, a relay that stands ready) are findings too, `due` ones. A
repair is proposed only where the rows leave no doubt. Every finding lists the keys of all rows that it rests on: a scan
reads rows one after the other, so a finding counts only when those rows, read again without a change, still say it.
"""
