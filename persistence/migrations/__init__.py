"""The revisions of a server's tables, one file each; `persistence/migrating.py` runs them with Alembic.

A revision's id is the schema version that it leads to. It says what the tables were at that version, so it
imports nothing of ours, and it is never changed once it is released. MySQL commits every statement of it by
itself, so each must be such that an interrupted upgrade can be begun again.
"""
