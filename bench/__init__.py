"""Timings against uv and pip, and the demo."""
