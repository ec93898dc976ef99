"""Nodes that are emptied without losing work, at once or a few at a time."""
