"""Speed against named rivals and physical limits, side by side in one run; prints ratios, times nothing in tests."""
