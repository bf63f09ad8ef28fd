"""Reading a machine and an environment from what people send."""
