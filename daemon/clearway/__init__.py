"""Clearway makes room on a Slurm cluster for urgent jobs, at the least loss to everyone else."""

__version__ = "0.1.0"
