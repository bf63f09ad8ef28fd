"""What the dynamic loader would find for the libraries of an environment, by reading them."""
