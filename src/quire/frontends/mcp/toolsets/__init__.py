"""Tool sets over the one core: each module adds its tools to a registry, and all act on the same notebooks."""
