"""environment_checks"""
