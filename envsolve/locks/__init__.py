"""Locks of any tool, checked for machines."""
