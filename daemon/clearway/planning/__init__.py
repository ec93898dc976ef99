"""Pure planners: an eviction problem in, a trade-off curve out. One file each, found through entry points."""
