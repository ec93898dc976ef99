"""Recorded workloads: Standard Workload Format, and what sacct tells."""
