"""Ways out, each chosen and judged by the same rules and facts as a plan: nothing that they refuse is advised."""
