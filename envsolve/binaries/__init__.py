"""ELF and PE files, GPU code in them, ptxas programs, and wheels as files."""
