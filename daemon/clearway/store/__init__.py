"""The database: one protocol, and SQLAlchemy behind it."""
