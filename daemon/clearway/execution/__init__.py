"""Carrying plans out: a pure table of steps, the executor that takes them, the placement that keeps freed nodes."""
