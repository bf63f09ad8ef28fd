"""Fleets: the machines of a cluster probed, planned, installed and verified through the cluster's own tools."""
