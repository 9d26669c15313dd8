"""What a person reads when the search has ended."""
