"""What earlier trials teach a run."""
