"""Planners to compare with: the papers' own and those of schedulers."""
