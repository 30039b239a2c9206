"""The calls of a body while it executes, and the ends of its run: the public interface, in mock time."""
