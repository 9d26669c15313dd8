"""From a candidate to an artifact: export, tuning, compilation."""
