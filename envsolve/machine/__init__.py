"""The model of a machine; reading this host; profile files and target strings."""
