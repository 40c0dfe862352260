"""Parts of scripts/gpu-check, scripts/report and scripts/tune-from-json."""
