"""The README and the tutorials, executed as by a new user: a new clone, an empty environment, not root."""
