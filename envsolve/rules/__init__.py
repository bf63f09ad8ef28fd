"""The rules of CUDA compatibility, pure: (build, machine) -> verdict."""
