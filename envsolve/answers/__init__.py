"""Answers that were given, kept for whoever asks the same again while all that they came from is as it was."""
