"""A simulated device, for tests of searchers and budgets without hardware."""
