"""Schedulers for the replay of recorded workloads: that of Slurm's kind, those of the papers, and Clearway's."""

GROUP = "clearway.schedulers"  # of the entry points that name them
