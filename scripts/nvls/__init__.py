"""Parts of scripts/validate-nvls."""
