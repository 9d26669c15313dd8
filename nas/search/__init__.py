"""From a proposal to a front."""
