"""The operating system: files, child processes, arguments."""
