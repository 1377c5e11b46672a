"""The parts of tools/kernel-map."""
