"""Changes to a program, as changes to its timeline."""
