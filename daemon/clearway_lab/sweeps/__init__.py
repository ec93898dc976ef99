"""Many tasks at a time: on this machine, or in jobs on a Slurm cluster."""
