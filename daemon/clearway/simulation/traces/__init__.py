"""Recorded workloads: where they come from, and what is added to them."""
