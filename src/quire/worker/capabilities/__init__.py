"""Installed and native capabilities as Python objects in the kernel."""
