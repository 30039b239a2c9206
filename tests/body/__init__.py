"""What a body is offered while it executes, and how its run ends: the public interface, in mock time."""
