"""What a candidate costs on a device."""
