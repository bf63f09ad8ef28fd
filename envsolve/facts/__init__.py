"""Typed records over index_data/: loading, look-ups, and measuring artefacts to refresh them."""
