"""The replay of a recorded workload on a machine of equal nodes."""
