"""The daemon: its loop, the requests that it answers, its housekeeping, its server."""
