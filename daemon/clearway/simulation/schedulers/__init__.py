"""Schedulers for the simulator: one file each, found through the entry points ``clearway.schedulers``."""
