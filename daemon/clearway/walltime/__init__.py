"""How long to ask for: the sequence of walltime requests, and of checkpoints, of least expected cost. Pure."""
