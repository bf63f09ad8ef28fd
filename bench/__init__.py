"""Timings against uv and pip."""
