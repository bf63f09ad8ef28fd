"""Package indexes over HTTP, their cache and credentials; source trees; requirement and project files."""
