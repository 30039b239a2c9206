"""The revisions of a server's tables, one file each; `persistence/migrating.py` runs them with Alembic.

A revision's id is the resulting schema version. A revision defines the tables of that version, so it imports
nothing of Greenroom, and it must not change after its release. MySQL commits each statement separately, so an
interrupted upgrade must be repeatable.
"""
