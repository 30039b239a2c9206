"""What makes a simulation the same each time: one seed for the clock, the scheduler and all chance."""
