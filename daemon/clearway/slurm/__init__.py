"""The thin wrapper around Slurm: one protocol, three backends. Slurm's text becomes types here, once."""
