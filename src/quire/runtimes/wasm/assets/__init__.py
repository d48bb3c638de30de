"""The programs that run in WebAssembly: built or obtained by name, never committed."""
