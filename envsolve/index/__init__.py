"""Package indexes over HTTP: pages, metadata, cache, credentials."""
