"""Bounds on every plan, and the searches that they make short."""
