"""Telling owners and operators: what a change means for whom, and how it reaches them."""
