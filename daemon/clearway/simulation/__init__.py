"""A cluster in memory, recorded workloads, and schedulers that replay them."""
