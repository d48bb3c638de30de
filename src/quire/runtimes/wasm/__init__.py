"""Kernels in WebAssembly: guests in pooled processes, behind the one interface of all kernels."""
