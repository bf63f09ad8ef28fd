"""Machines and requirements -> the Plan: the stages in their order, and what the answer says about itself."""
