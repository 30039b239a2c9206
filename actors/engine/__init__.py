"""The engine as a whole: how it is opened, called, recovered and left."""
