"""Carrying operations out: the executor, the table of one job, the placement and the node hold. Knows no slice."""
