"""Clearway makes room for urgent jobs on a Slurm cluster, at the least loss of other jobs' work."""

__version__ = "0.1.0"
