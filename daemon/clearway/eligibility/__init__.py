"""Which jobs may leave their nodes and how, which users may ask for it, and what is under way already. Pure."""
