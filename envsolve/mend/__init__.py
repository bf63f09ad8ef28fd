"""Carrying out the least remedy of an environment, and putting back what was there before."""
