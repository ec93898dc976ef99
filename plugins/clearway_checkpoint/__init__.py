"""Checkpointers: one Python file each, with its driver for the compute node (``NAME.sh``) beside it."""
