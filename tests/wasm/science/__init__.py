"""The Python guest that has numpy, pandas, scipy, scikit-learn and matplotlib inside."""
