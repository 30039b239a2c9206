"""What happens in a simulation: who calls, what bodies do, and what fails."""
