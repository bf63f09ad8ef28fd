"""A given Dockerfile, held against the machines that its image is meant for."""
