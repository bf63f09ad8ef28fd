"""What a machine is; reading this host; profile files and target strings."""
