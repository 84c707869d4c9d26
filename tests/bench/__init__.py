"""What moving a graph forward costs: the code of `scripts/bench`. It never changes what it measures; it only counts."""
