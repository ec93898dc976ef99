"""The configuration file, and the plugins that it may name."""
