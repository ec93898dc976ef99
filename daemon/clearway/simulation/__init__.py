"""A cluster in memory that answers as Slurm does: for the demo, the tests and replays."""
