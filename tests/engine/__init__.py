"""The engine as an application uses it: submit, follow, control."""
