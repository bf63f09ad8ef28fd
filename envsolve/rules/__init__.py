"""The rules of GPU compatibility, pure: (build, machine) -> verdict."""
