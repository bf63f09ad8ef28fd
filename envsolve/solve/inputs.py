"""The kinds of input that say what is asked for: arguments, requirement files, projects."""
