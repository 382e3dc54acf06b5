"""What each step computes, and who holds which part of the caches."""
