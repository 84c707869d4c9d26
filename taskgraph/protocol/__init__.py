"""The pure middle: rows and items go in, changes and effects come out. No I/O, no clock, no chance."""
