"""The database: one store on SQLAlchemy, made of functions on rows."""
