"""What upstream's functions do with their arguments before the kernel sees them, for NumPy arrays and torch tensors alike."""
