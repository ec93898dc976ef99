"""The command line. It reads the store, and writes requests to it."""
