"""The engine of `beeline tune`, and of scripts/sweep-ranks: jobs of beeline-perf, what they leave, and the thresholds it makes."""
