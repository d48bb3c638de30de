"""Side-by-side measurements; each prints ratios of one run, never bare milliseconds."""
