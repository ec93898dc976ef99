"""Nodes that shall be free at a time that is known before: a beam time, a drill."""
