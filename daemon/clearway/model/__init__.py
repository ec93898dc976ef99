"""The words of the product as frozen data: what is seen, what is decided, what is remembered. No I/O, no Slurm text."""
