"""The program that holds guests: it imports wasmtime, the wire and nothing else of ours."""
