"""What the commands for boxes with GPUs share: stages and their steps, records, tables, thresholds."""
