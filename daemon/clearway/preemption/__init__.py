"""Urgent jobs: detected, planned for, and room made for them."""
